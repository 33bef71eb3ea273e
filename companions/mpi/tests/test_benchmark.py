"""Every side of the comparison of our own framework with PyTorch runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest

from benchmarks import measure
from companions.mpi.benchmarks import mpi_step
from hpc_utils import paths

EACH = """
import json
from companions.mpi.benchmarks.mpi import main
loaders = [main(kind, 1, dataset="digits", count=count) for kind, count in (("ours", 1), ("torch", 0), ("copy", 1))]
steps = [main(kind, 1, steps=1) for kind in ("torch, channels_last", "torch, contiguous", "ours")]
print(json.dumps(loaders + steps))
"""


@pytest.mark.soak  # the other tests have the same steps and loaders
def test_each_side_measures_something() -> None:
    done = subprocess.run([sys.executable, "-c", EACH], cwd=paths.root(), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert len(found := json.loads(done.stdout)) == 6 and min(found) > 0


@pytest.mark.soak
def test_steps_stand_beside_ddps_with_their_share_of_the_roofline() -> None:
    rows = list(mpi_step.run(measure.Options(quick=True)))
    assert [row.variant for row in rows] == ["torch", "DDP, one rank", "ours"]
    for row in rows:
        assert 0 < row.min <= row.median <= row.max < math.inf and row.repeats == 2
        assert "images/s" in row.note and "of the fp32 roofline" in row.note and "nan" not in row.note
