"""With the real nsys: reports against its own `nsys stats`, and a run of two ranks from NVTX ranges to phases."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze.profiles import kernels, phases
from hpc_utils.analyze.profiles import nsys as reader
from hpc_utils.analyze.profiles.timeline import MEMORY, ProfileError, Timeline

from .timelines import named

REPORTS = {"ddp-4xA100-one-rank": (0, 4), "loader-16workers-1xA100": (0, 1)}  # rank, world size
# Reports of `nsys stats`: before 2023.1, since.
KERNELS = ("gpukernsum", "cuda_gpu_kern_sum")
COPY_TIMES = ("gpumemtimesum", "cuda_gpu_mem_time_sum")
RANGES = ("nvtxsum", "nvtx_sum")

# A rank that computes nothing, and says what it does.
PROGRAM = """
import os, time
import nvtx
open("started" + os.environ["RANK"], "w").close()
for step in range(3):
    with nvtx.annotate(f"step {step}"):
        for phase in ("data", "forward", "backward", "optimizer"):
            nvtx.push_range(phase)
            time.sleep(0.002)
            nvtx.pop_range()
"""
# Sessions are kept apart by TMPDIR, which must be short: nsys makes sockets in it. Started side by side, nsys 2022.4 may hang.
PROFILED = """#!/bin/sh
export TMPDIR="$SCRATCH/$RANK"
mkdir "$TMPDIR"
[ "$RANK" = 0 ] || until [ -e started$((RANK - 1)) ]; do sleep 0.1; done
exec nsys profile --trace=nvtx --sample=none --cpuctxsw=none --backtrace=none --output=run-rank%q{RANK} "$PYTHON" program.py
"""


def mirrored(name: str) -> Path:
    path = Path(os.environ.get("HPC_DATA_MIRROR") or "../shared") / "profiles/nsys" / name
    if not path.is_file():
        pytest.skip(f"no real report at {path} (set HPC_DATA_MIRROR)")
    return path


@pytest.fixture(scope="module", params=REPORTS)
def exported(request: pytest.FixtureRequest, nsys: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of somebody's report."""
    folder = tmp_path_factory.mktemp("exports")
    exported = reader._exported(mirrored(f"{request.param}.nsys-rep"), folder)
    return exported.rename(folder / f"{request.param}.sqlite")


@pytest.fixture(scope="module")
def timeline(exported: Path) -> Timeline:
    [one] = reader.read(exported)
    return one


@pytest.fixture(scope="module")
def stats(exported: Path, nsys: str) -> Callable[[tuple[str, str]], pd.DataFrame]:
    """A report of `nsys stats`: name, count, total (ns or MB)."""
    known = subprocess.run([nsys, "stats", "--help-reports"], capture_output=True, text=True, timeout=120).stdout

    def table(names: tuple[str, str]) -> pd.DataFrame:
        report = f"--report={names[names[1] in known]}"
        command = [nsys, "stats", "--format", "csv", report, str(exported)]
        text = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
        lines = text.splitlines()
        header = next(number for number, line in enumerate(lines) if line.startswith(("Time", "Total")))
        frame = pd.read_csv(io.StringIO("\n".join(lines[header:])))
        given = {"name": "Name|Operation|Range", "count": "Instances|Count", "total": r"Total(?: Time)? \(.*\)"}
        return pd.DataFrame(
            {name: frame.filter(regex=f"^(?:{columns})$").iloc[:, 0] for name, columns in given.items()}
        )

    return table


def test_rank_and_device_are_those_of_the_launcher(timeline: Timeline, exported: Path) -> None:
    assert (timeline.rank, timeline.world_size) == REPORTS[exported.stem]
    assert (timeline.device, timeline.device_name, timeline.aligned) == (0, "NVIDIA A100-SXM4-40GB", True)
    assert timeline.remarks == ()


def test_kernels_are_those_of_nsys_stats(timeline: Timeline, stats: Callable) -> None:
    """Count and total time of every kernel, to the nanosecond."""
    table = stats(KERNELS)
    theirs = table.groupby(table["name"].map(kernels.short))[["count", "total"]].sum()
    ours = kernels.table([timeline]).groupby("name")[["count", "total_ns"]].sum()
    assert ours.T.to_dict("list") == theirs.T.to_dict("list")
    own = timeline.ops.where(timeline.ops.kind != MEMORY)
    assert np.all(own.launched > 0)
    assert np.all(own.launched <= own.start)


def test_memory_operations_are_those_of_nsys_stats(timeline: Timeline, stats: Callable) -> None:
    times = stats(COPY_TIMES)
    memory = timeline.ops.of_kind(MEMORY)
    assert len(memory) == times["count"].sum() > 0
    assert (memory.end - memory.start).sum() == times["total"].sum()


def test_ranges_are_those_of_nsys_stats(timeline: Timeline, stats: Callable) -> None:
    table = stats(RANGES)
    assert len(timeline.ranges) == table["count"].sum()
    assert (timeline.ranges.end - timeline.ranges.start).sum() == table["total"].sum()
    for name in ("forward", "optimizer"):
        start, end = named(timeline.ranges, name)
        row = table[table["name"].str.removeprefix(":") == name]
        assert (len(start), (end - start).sum()) == (row["count"].item(), row["total"].item())


def test_a_report_is_read_without_a_trace_of_its_export(nsys: str) -> None:
    source = mirrored("ddp-4xA100-one-rank.nsys-rep")
    before = sorted(source.parent.iterdir())
    [one] = reader.read(source)
    assert (one.source, len(one.ops)) == (str(source), 24_801)
    assert sorted(source.parent.iterdir()) == before


@pytest.mark.parametrize("part", [0.001, 0.4])
def test_a_truncated_report_is_refused(nsys: str, tmp_path: Path, part: float) -> None:
    whole = mirrored("ddp-4xA100-one-rank.nsys-rep").read_bytes()
    path = tmp_path / "cut.nsys-rep"
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(ProfileError, match=r"cut\.nsys-rep could not be exported"):
        reader.read(path)


def test_two_ranks_under_torchrun_tell_their_phases(nsys: str, tmp_path: Path) -> None:
    """nsys stands inside torchrun: a report a rank."""
    pytest.importorskip("nvtx")
    (tmp_path / "program.py").write_text(PROGRAM)
    wrap = tmp_path / "wrap.sh"
    wrap.write_text(PROFILED)
    wrap.chmod(0o755)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    with TemporaryDirectory(prefix="nsys-") as scratch:
        done = subprocess.run(
            [*torchrun, str(wrap)],
            cwd=tmp_path,
            env=os.environ | {"PYTHON": sys.executable, "SCRATCH": scratch},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        [one] = reader.read(tmp_path / f"run-rank{rank}.nsys-rep")
        assert (one.rank, one.world_size, one.device, one.ops) == (rank, 2, None, None)
        assert "no events of a GPU" in one.remarks[0]
        found = {row["phase"]: (row["count"], row["host_ns"]) for row in phases.spent(one)}
        assert {name: count for name, (count, _) in found.items()} == dict.fromkeys(phases.Phase, 3)
        assert all(ns >= 3 * 2_000_000 for _, ns in found.values())
        assert found["step"][1] >= sum(ns for name, (_, ns) in found.items() if name != "step")
