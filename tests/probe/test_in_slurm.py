"""In a job of a real Slurm, on two nodes, under the launcher that training has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpc_utils import paths, rehearsal

from .conftest import Examined

HANG = 180  # s for a job that takes some fifteen


@pytest.fixture(scope="module")
def examined(cluster: rehearsal.Cluster, tmp_path_factory) -> Examined:
    """What a job that may not be requeued finds out on both nodes."""
    folder: Path = tmp_path_factory.mktemp("slurm")
    copy, log = folder / "doctor.json", folder / "job.log"
    script = folder / "doctor.sbatch"
    script.write_text(
        "#!/bin/bash\nset -euo pipefail\nsource jobs/launch.sh\n"
        f'"${{launcher[@]}}" -m hpc_utils.probe --device=cpu --link-gbit=1 --copy={copy}\n'
    )
    python = Path(sys.executable).parent
    environment = folder / "environment.sh"
    environment.write_text(f'export PATH={python}:"$PATH"\n')
    env = os.environ | cluster.environment() | {"HPC_RESULTS": str(folder / "results"), "RANKS_PER_NODE": "1"}
    env |= {"HPC_JOB_ENVIRONMENT": str(environment)}
    options = ["--nodes=2", "--ntasks-per-node=1", "--time=00:04:00", "--no-requeue", f"--output={log}"]
    subprocess.run(["sbatch", *options, str(script)], cwd=paths.root(), env=env, check=True, capture_output=True)
    end = time.monotonic() + HANG
    while not copy.exists() and time.monotonic() < end:
        time.sleep(0.2)
    said = log.read_text() if log.exists() else "(no log)"
    return Examined(0, said, "", json.loads(copy.read_text()) if copy.exists() else None)


def test_slurm_answers_on_its_nodes(examined) -> None:
    assert examined.verdict("accounting") == "pass", examined.out
    assert examined.verdict("time limit") == "fail"
    assert examined["time limit"]["measured"] == "TimeLimit=00:04:00, Requeue=0"
    assert "--requeue" in examined["time limit"]["fix"]


def test_the_nodes_are_told_apart(examined) -> None:
    assert examined.report["nodes"] == 2
    assert examined.report["hosts"] == ["node1", "node2"]
    assert examined.report["provenance"]["job"]["nodelist"] == "node[1-2]"
    for name in ("ranks", "names", "process group", "shared results", "clock skew", "interface"):
        assert examined.verdict(name) == "pass", examined.out
