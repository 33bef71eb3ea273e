"""A rank fails: the whole run ends soon, says why, and never looks complete."""

from __future__ import annotations

import json
import re
import textwrap
import time

import pytest

from hpc_utils import records
from hpc_utils.launch import failure, local
from hpc_utils.launch.request import Layout, prepare
from tests.support import soak

from .conftest import TRAIN, Bench, Outcome, is_marked_failed, kept

SOON = 120  # s: a rank that nobody ends sleeps for longer, or waits for the others


def require_failed(bench: Bench, outcome: Outcome, *reasons: str) -> None:
    """The run of `bench` failed in time, for `reasons`, said everywhere, and counts nowhere."""
    assert outcome.code == 1, outcome.err
    assert outcome.seconds < SOON
    status, text = bench.status(), kept(bench.run).cells[0].source
    assert status["state"] == "failed"
    for reason in reasons:
        assert reason in status["reason"]
        assert reason in text
        assert reason in outcome.err
    assert is_marked_failed(bench.run)
    assert records.load(bench.results).unfinished == {bench.run.name: "failed"}
    assert bench.left() == []


def test_rank_that_is_lost_in_training(bench):
    outcome = bench.hpc("run", bench.notebook(TRAIN), "--nproc", 2, FAULT="kill", FAULT_RANK=0)
    require_failed(bench, outcome, "rank 0 was killed by SIGKILL")


def test_an_error_of_the_users_code_is_shown_with_its_frames_alone(bench):
    outcome = bench.hpc("run", bench.notebook(TRAIN), "-p", "parallel=none", FAULT="raise", FAULT_RANK=0)
    require_failed(bench, outcome, "rank 0 raised ValueError: step three went wrong\n")
    frames = re.findall(r"^(Cell|File .*/\w+\.py:)", outcome.err, re.M)
    assert [frame.rpartition("/")[2] for frame in frames] == ["faulty.py:"] * 2, "the forward pass, and what it calls"
    assert "/hpc_utils/train/loop.py:" in bench.hpc("logs", bench.run.name, "--lines", 0).out


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("if rank == 1: raise RuntimeError('early')", "rank 1 raised RuntimeError: early"),
        ("if rank == 1: ctypes.string_at(0)", "rank 1 was killed by SIGSEGV"),
        soak("if rank == 1: os.kill(os.getpid(), signal.SIGTERM)", "rank 1 was killed by SIGTERM"),
        soak("if rank == 1: os._exit(5)", "rank 1 left with exit code 5"),
    ],
    ids=["raises", "crashes", "terminated", "exits"],
)
def test_rank_fails_before_training_while_the_other_sleeps(bench, cell, reason):
    start = """
    import ctypes, os, signal, time
    rank = int(os.environ["RANK"])
    print("last words", flush=True)
    open(f"here{rank}", "w").close()
    while not os.path.exists("here0"):
        time.sleep(0.02)
    """
    notebook = bench.notebook("1 + 1", f"{textwrap.dedent(start)}{cell}\ntime.sleep(600)")
    outcome = bench.hpc("run", notebook, "--nproc", 2)
    require_failed(bench, outcome, reason)
    if "raised" in reason:
        assert "raise RuntimeError" in outcome.err, "the line of the cell"
    if "was killed" in reason:
        assert "last words" in bench.status()["reason"]
    if "SIGSEGV" in reason:  # faulthandler's stack from its inner end, after what was written before the crash
        assert "string_at" in bench.status()["reason"]
    # What was done until then is kept.
    assert kept(bench.run).cells[2].outputs[0].data["text/plain"] == "2"


def test_a_hang_ends_by_the_collectives_timeout_and_the_hanging_rank_does_not_delay_the_end(bench, monkeypatch):
    monkeypatch.setattr(local, "GRACE", 1.0)  # for a rank that does not heed SIGTERM
    for name, value in {"HPC_RESULTS": bench.results, "FAULT": "hang"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(bench.folder)
    begun = time.monotonic()
    with pytest.raises(local.RunFailed, match=r"(?s)rank 0 raised.*imed out.*rank 1 was here.* in misbehave"):
        local.run(prepare(bench.notebook(TRAIN), {"collective_timeout": 3}, Layout(1, 2)))
    assert time.monotonic() - begun < SOON
    assert is_marked_failed(bench.run)
    assert bench.left() == []


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (["1 + 1"], "records contradict each other"),  # it trains nothing
        (["epochs = 2", TRAIN], "other values of epochs"),  # it changes its parameters
        ([TRAIN, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"], "rank 0 was killed by SIGKILL"),
    ],
)
def test_one_plain_process_fails(bench, cells, reason):
    outcome = bench.hpc("run", bench.notebook(*cells), "-p", "parallel=none", RANK="0")
    require_failed(bench, outcome, reason)


@pytest.mark.parametrize("left", [b"", '{"cells": ["é'.encode()[:-1]], ids=["none", "split"])
def test_notebook_that_was_cut_off_in_writing_is_marked_all_the_same(tmp_path, left):
    path = tmp_path / "notebook.ipynb"
    path.write_bytes(left)
    path.write_text(json.dumps(failure.mark(path, "failed", "the reason")))
    assert is_marked_failed(tmp_path)
    assert "the reason" in kept(tmp_path).cells[0].source
