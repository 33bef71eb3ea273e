"""However a run ends, no process is left, and its folder says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from hpc_utils import records
from hpc_utils.launch.process_tree import GRACE
from hpc_utils.workspace import Launch

from .conftest import TRAIN, is_marked_failed

# Every rank starts something that would outlive it, one of them out of the process tree, and says that it is there.
SLEEP = """
import os, subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
subprocess.run(["sh", "-c", "sleep 600 & exit"])
open(f"here{os.environ.get('RANK', 0)}", "w").close()
"""


@pytest.mark.parametrize(
    ("number", "nproc", "code", "reason"),
    [
        (signal.SIGTERM, 2, 143, "SIGTERM was received, and no checkpoint was written after it"),
        (signal.SIGINT, 1, 130, "interrupted"),
    ],
)
def test_run_that_is_interrupted_leaves_no_process(bench, number, nproc, code, reason):
    notebook = bench.notebook(SLEEP + "time.sleep(600)")
    plain = ["-p", "parallel=none"] if nproc == 1 else []
    running = bench.start("run", notebook, "--nproc", nproc, *plain)
    bench.wait_for(lambda: all((bench.folder / f"here{rank}").exists() for rank in range(nproc)))
    assert len(bench.left()) >= 3 * nproc
    running.process.send_signal(number)
    outcome = running.end()
    assert outcome.code == code
    assert reason in outcome.err and "Traceback" not in outcome.err
    assert bench.left() == []
    assert (bench.status()["state"], bench.status()["reason"]) == ("failed", reason)
    assert is_marked_failed(bench.run)


def test_second_interrupt_does_not_wait_for_a_rank_that_will_not_end(bench):
    notebook = bench.notebook(
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP + "time.sleep(600)"
    )
    running = bench.start("run", notebook, "-p", "parallel=none")
    bench.wait_for((bench.folder / "here0").exists)
    begun = time.monotonic()
    for _ in range(2):
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    assert running.end().code == 130
    assert time.monotonic() - begun < GRACE
    assert bench.left() == []


def test_killed_launcher_takes_all_with_it_and_its_claim_is_taken_over(bench):
    notebook = bench.notebook(TRAIN)
    running = bench.start("run", notebook, "--nproc", 2, FAULT="hang")
    bench.wait_for((bench.folder / "hanging").exists)
    (forkserver,) = (process for process in psutil.Process(bench.hpc_pid).children() if process.children())
    assert len(forkserver.children(recursive=True)) == 2  # the ranks: nothing stands between
    running.process.kill()
    assert running.end().code == -signal.SIGKILL
    bench.wait_for(lambda: not bench.left(), 5)
    assert records.load(bench.results).unfinished == {bench.run.name: "dead"}

    outcome = bench.hpc("run", notebook, "--nproc", 2)
    assert outcome.code == 0, outcome.err
    assert bench.status()["state"] == "complete"
    assert (bench.run / "earlier" / "0001" / "status.json").exists()


def test_processes_that_start_while_their_launcher_dies_end_too(bench):
    """The kernel tells a child of its parent's end only once it was asked to."""
    code = "from hpc_utils import workspace; from hpc_utils.launch.process_tree import die_with_parent; die_with_parent(workspace.launch().parent); print('alive')"
    for parent, printed in ((os.getpid(), "alive\n"), (1, "")):
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=os.environ | Launch(parent=parent).variables, capture_output=True, text=True
        )
        assert done.stdout == printed
