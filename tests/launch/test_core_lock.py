"""Runs on the same cores wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hpc_utils.provenance.cpu import usable

from .conftest import Bench

HOLD = """
import os, sys
from hpc_utils.launch import core_lock
if len(sys.argv) > 2:
    os.sched_setaffinity(0, {int(sys.argv[2])})
with core_lock.lock_cores(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
Hold = Callable[..., subprocess.Popen]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """`hold(run, cpu)`: a process that locks this CPU (default: all) for a run, in a folder of this test."""
    with ExitStack() as stack:

        def start(run: str, *cpu: int) -> subprocess.Popen:
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            command = [sys.executable, "-c", HOLD, run, *map(str, cpu)]
            process = subprocess.Popen(
                command, env=os.environ | {"TMPDIR": str(tmp_path), "HPC_SHARED": ""}, text=True, **pipes
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def test_a_run_waits_for_that_on_its_cores_even_if_it_is_killed(hold: Hold) -> None:
    first = hold("run-a")
    assert first.stdout.readline() == "held\n"
    second = hold("run-b")
    line = second.stderr.readline()
    assert "run-a" in line and f"process {first.pid}" in line and f"CPUs {usable()[0]} to {usable()[-1]}" in line
    first.kill()
    assert second.stdout.readline() == "held\n"


@pytest.mark.skipif(len(usable()) < 2 or sys.platform != "linux", reason="one core")
def test_runs_on_cores_of_their_own_do_not_wait(hold: Hold) -> None:
    one, other, *_ = usable()
    for process in (hold("run-a", one), hold("run-b", other)):
        assert process.stdout.readline() == "held\n"
    assert "run-a" in hold("run-c").stderr.readline()


def test_a_run_waits_unless_it_is_marked_shared(bench: Bench, hold: Hold) -> None:
    bench.server = 0  # it has read its own TMPDIR
    cold = ("--cold", "-p", "parallel=none")
    first = hold("run-a")
    assert first.stdout.readline() == "held\n"
    notebook = bench.notebook("import os\nassert os.environ['HPC_SHARED']")
    shared = bench.hpc("run", notebook, *cold, TMPDIR=bench.folder)
    assert "run-a" not in shared.err and bench.run.exists(), "it ran, though without a measurement"
    waiting = bench.start("run", notebook, *cold, "-p", "seed=1", TMPDIR=bench.folder, HPC_SHARED="")
    assert "run-a" in waiting.process.stderr.readline()
    assert len(bench.runs) == 1, "nothing is claimed while it waits"
    first.stdin.close()
    waiting.end()
    assert len(bench.runs) == 2
