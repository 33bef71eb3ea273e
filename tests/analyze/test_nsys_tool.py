"""With the real nsys: reports against its own `nsys stats`, and a run of two ranks from NVTX ranges to phases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpc_utils.analyze import nsys as reader
from hpc_utils.analyze.nsys import report, stats
from hpc_utils.analyze.timeline import MEMORY, ProfileError, phases

REPORTS = ("ddp-4xA100-one-rank", "loader-16workers-1xA100")
ASKED = ("gpukernsum", "gpumemtimesum", "gpumemsizesum", "nvtxsum", "openaccsum")
RENAMED = stats.RENAMED | {"openaccsum": "openacc_sum"}


@pytest.fixture(scope="module", params=REPORTS)
def exported(request: pytest.FixtureRequest, nsys: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of somebody's report."""
    source = Path(os.environ.get("HPC_DATA_MIRROR") or "../shared") / f"profiles/nsys/{request.param}.nsys-rep"
    if not source.is_file():
        pytest.skip(f"no real report at {source} (set HPC_DATA_MIRROR)")
    file = tmp_path_factory.mktemp("exports") / f"{request.param}.sqlite"
    report.export(source, file)
    return file


@pytest.fixture(scope="module")
def summaries(exported: Path, nsys: str) -> stats.Stats:
    """What `nsys stats` says of it, in whichever dialect this one speaks."""
    known = subprocess.run([nsys, "stats", "--help-reports"], capture_output=True, text=True, timeout=120).stdout
    names = [RENAMED[name] if RENAMED[name] in known else name for name in ASKED]
    command = [nsys, "stats", "--format", "csv", *(f"--report={name}" for name in names), str(exported)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    file = exported.with_suffix(".csv")
    file.write_text(done.stdout)
    return stats.read(file)


def test_kernels_are_those_of_nsys_stats(exported: Path, summaries: stats.Stats) -> None:
    [one] = reader.read(exported)
    table = summaries.frames[stats.KERNELS]
    kernels = one.ops.where(one.ops.kind != MEMORY)
    durations = kernels.end - kernels.start
    assert table["count"].sum() == len(kernels)
    assert table["total_ns"].sum() == durations.sum()
    assert sorted(table["max_ns"])[-1] == durations.max()
    by_name = np.bincount(kernels.name, minlength=len(kernels.names))
    assert sorted(table["count"]) == sorted(by_name[by_name > 0])
