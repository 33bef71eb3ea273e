"""Cells on two engines: what they do, and that a rank that fails does not keep the others."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from ipyparallel.error import AlreadyDisplayedError

from hpc_utils.interactive.engines import Engines, EnginesError, start

from .conftest import HANG, Notebook

PREPARE = """
import os, signal, time
import torch
import torch.distributed as dist
rank, x = dist.get_rank(), torch.ones(4)
"""


@pytest.fixture(scope="module")
def running(notebook: Notebook) -> Iterator[Engines]:
    with start(2) as crew:
        yield crew


@pytest.fixture
def crew(running: Engines, notebook: Notebook) -> Engines:
    """Two ranks in a new group."""
    running.join()
    notebook.px(PREPARE)
    return running


def test_every_rank_is_a_process_and_the_ranks_reach_each_other(
    crew: Engines, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    table = crew.table
    assert list(table.index) == [0, 1] and table["process"].nunique() == 2
    assert len(os.sched_getaffinity(0)) < 2 or table["logical CPUs"].nunique() == 2
    notebook.px("x *= 10**rank; dist.all_reduce(x); print('rank', rank)")
    assert [x.tolist() for x in crew.view["x"]] == [[11.0] * 4] * 2
    output = capsys.readouterr().out
    assert "rank 0" in output and "rank 1" in output


def test_a_failing_rank_ends_the_cell_on_the_others(
    crew: Engines, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    """By gloo's time-out; both errors are shown, and a new group works."""
    crew.join(timeout=2)
    begin = time.monotonic()
    with pytest.raises(AlreadyDisplayedError):
        notebook.px("if rank == 1: raise ValueError('no data')\ndist.all_reduce(x)")
    assert time.monotonic() - begin < HANG
    errors = capsys.readouterr().err
    assert "no data" in errors and "RuntimeError" in errors
    crew.join()
    notebook.px("dist.all_reduce(x)")


def test_a_failing_rank_ends_a_backward_pass_too(crew: Engines, notebook: Notebook) -> None:
    """DDP keeps the group's connections open even when the group is destroyed."""
    crew.join(timeout=2)
    notebook.px("ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))")
    notebook.px("if rank == 0: raise ValueError('no data')\nddp(x).sum().backward()", "--noblock")
    outcomes = crew.outcomes()
    assert outcomes.outcome[0] == "ValueError: no data"
    assert outcomes.outcome[1].startswith("RuntimeError: ")
    assert outcomes.seconds.notna().all() and outcomes.seconds[1] < HANG
    crew.join()
    notebook.px("dist.all_reduce(x)")


def test_ctrl_c_interrupts_the_engines(crew: Engines, notebook: Notebook) -> None:
    threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
    begin = time.monotonic()
    notebook.px("time.sleep(600)")
    notebook.px("dist.all_reduce(x)")
    assert time.monotonic() - begin < HANG


@pytest.mark.soak
def test_an_engine_that_has_ended_is_named(notebook: Notebook) -> None:
    with start(2) as crew:
        crew.join(timeout=2)
        notebook.px(PREPARE)
        cell = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(x)"
        notebook.px(cell, "--noblock")
        assert "died" in crew.outcomes().outcome[1]
        with pytest.raises(EnginesError, match="have ended"):
            crew.join()
