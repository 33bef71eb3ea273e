"""Gradients over ranks: their sum, what is recorded of it, and how a rank that does not fit ends all."""

from __future__ import annotations

import json
import re

import pytest

from hpc_utils import paths

from .conftest import Mpiexec

SUMS = """
import json, time
import numpy as np
from companions.mpi.communication import MPI, Allreduce

comm, found = MPI.COMM_WORLD, []
for overlap in (False, True):
    for bucket in (4, 64, 1e6):
        gradients = np.empty(100, np.float32)
        reduce = Allreduce(comm, gradients, bucket_bytes=bucket, overlap=overlap)
        for step in range(3):
            gradients[:] = np.arange(100) * (comm.rank + 1) + step
            for start, stop in ((90, 100), (20, 90), (0, 20)):
                reduce.ready(slice(start, stop))
            reduce.finish()
            total = np.arange(100) * comm.size * (comm.size + 1) / 2 + comm.size * step
            assert (gradients == total).all(), (overlap, bucket, step)
        found.append(0 < reduce.seconds and 0 < reduce.exposed)
if comm.rank == 0:
    print(json.dumps(found))
MPI.Finalize()
"""
FAULTY = """
import time
import numpy as np
from companions.mpi.communication import MPI, Allreduce

rank = MPI.COMM_WORLD.rank
gradients = np.zeros(8 + FAULT("shape"), np.float32)
reduce = Allreduce(MPI.COMM_WORLD, gradients, bucket_bytes=4, overlap=OVERLAP, timeout=1)
if FAULT("raise"):
    raise ValueError("step three went wrong")
if FAULT("missing"):
    time.sleep(600)
reduce.ready(slice(0, 8))
reduce.finish()
MPI.Finalize()
"""


def test_gradients_are_summed_in_buckets_of_any_size(mpiexec: Mpiexec) -> None:
    done = mpiexec(3, SUMS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == 6 * [True]


@pytest.mark.parametrize(
    ("fault", "message"),
    [("shape", "rank 1 has"), ("raise", "step three went wrong"), ("missing", "took more than 1 s")],
)
@pytest.mark.parametrize("overlap", [True, False])
def test_a_rank_that_does_not_fit_ends_all_with_its_message(
    mpiexec: Mpiexec, fault: str, message: str, overlap: bool
) -> None:
    code = FAULTY.replace("OVERLAP", str(overlap))
    code = code.replace(f'FAULT("{fault}")', "(rank == 1)")
    for other in ("shape", "raise", "missing"):
        code = code.replace(f'FAULT("{other}")', "False")
    done = mpiexec(2, code)
    assert done.returncode and message in done.stderr


def test_slices_come_in_order(mpiexec: Mpiexec) -> None:
    lines = FAULTY.replace("slice(0, 8)", "slice(0, 4)").replace("OVERLAP", "False")
    done = mpiexec(1, "FAULT = lambda name: False\n" + lines)
    assert done.returncode and "come next" in done.stderr


def test_hello_world_names_every_rank(mpiexec: Mpiexec) -> None:
    done = mpiexec(2, "import runpy; runpy.run_module('companions.mpi', run_name='__main__')")
    assert [line[:11] for line in done.stdout.splitlines()] == ["rank 0 of 2", "rank 1 of 2"]


def test_the_barriers_of_the_guide_name_the_part_that_hangs(mpiexec: Mpiexec) -> None:
    page = (paths.root() / "docs/mpi.md").read_text()
    programs = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    (program,) = (text for text in programs if "barrier" in text)
    done = mpiexec(2, program.replace("timeout=10", "timeout=1"))
    assert done.returncode and "the barrier after the epoch took more than 1 s" in done.stderr
