"""With the real nsys: a report is exported and read, and a run of two ranks goes from NVTX ranges to phases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hpc_utils.analyze.profiles import nsys as reader
from hpc_utils.analyze.profiles import phases
from hpc_utils.analyze.profiles.timeline import ProfileError

# A rank that computes nothing, and marks what it does.
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
profiled() {
    nsys profile --trace=nvtx --sample=none --cpuctxsw=none --backtrace=none --force-overwrite=true --output=run-rank%q{RANK} "$PYTHON" program.py
}
profiled || profiled # another test's nsys may have collided with it: see launch.rank_profiler
"""


def test_a_report_is_exported_beside_nothing_and_a_truncated_one_is_refused(nsys: str, tmp_path: Path) -> None:
    source = Path(os.environ.get("HPC_DATA_MIRROR") or "../shared") / "profiles/nsys/ddp-4xA100-one-rank.nsys-rep"
    if not source.is_file():
        pytest.skip(f"no real report at {source} (set HPC_DATA_MIRROR)")
    before = sorted(source.parent.iterdir())
    [one] = reader.read_report(source)
    assert (one.source, one.rank, one.world_size, one.device, len(one.ops)) == (str(source), 0, 4, 0, 24_801)
    assert (one.device_name, one.aligned, one.remarks) == ("NVIDIA A100-SXM4-40GB", True, ())
    assert sorted(source.parent.iterdir()) == before
    path = tmp_path / "cut.nsys-rep"
    path.write_bytes(source.read_bytes()[: int(source.stat().st_size * 0.4)])
    with pytest.raises(ProfileError, match=r"cut\.nsys-rep could not be exported"):
        reader.read_report(path)


def test_two_ranks_under_torchrun_mark_their_phases(nsys: str, tmp_path: Path) -> None:
    """nsys stands inside torchrun: a report a rank."""
    pytest.importorskip("nvtx")
    (tmp_path / "program.py").write_text(PROGRAM)
    wrap = tmp_path / "wrap.sh"
    wrap.write_text(PROFILED)
    wrap.chmod(0o755)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    with TemporaryDirectory(prefix="nsys-") as scratch:
        environment = os.environ | {"PYTHON": sys.executable, "SCRATCH": scratch}
        done = subprocess.run(
            [*torchrun, wrap], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        [one] = reader.read_report(tmp_path / f"run-rank{rank}.nsys-rep")
        assert (one.rank, one.world_size, one.device, one.ops) == (rank, 2, None, None)
        assert reader.NO_GPU in one.remarks
        found = {row["phase"]: row for row in phases.spent(one)}
        assert {name: row["count"] for name, row in found.items()} == dict.fromkeys(phases.Phase, 3)
        parts = [found[part]["host_ns"] for part in phases.PARTS]
        assert min(parts) >= 3 * 2_000_000 and found["step"]["host_ns"] >= sum(parts)
