"""Cells on two engines: what they do, and that nothing a rank does keeps the notebook waiting."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from ipyparallel.error import CompositeError

from hpc_utils.interactive.engines import Engines, EnginesError, start
from tests.support import soak

from .conftest import HANG, Notebook

CELL_TIMEOUT = 2.0
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
    """Two ranks in a new group; a cell has a minute, as by default."""
    crew = running
    crew.cell_timeout = 2.0 * HANG
    crew.join()
    notebook.px(PREPARE)
    return crew


def test_every_rank_is_a_process_and_the_ranks_reach_each_other(
    crew: Engines, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    table = crew.table
    assert list(table.index) == [0, 1] and table["process"].nunique() == 2
    assert len(os.sched_getaffinity(0)) < 2 or table["logical CPUs"].nunique() == 2
    notebook.px("x *= 10**rank; dist.all_reduce(x); print('rank', rank)")
    assert [x.tolist() for x in crew.view["x"]] == [[11.0] * 4] * 2
    shown = capsys.readouterr().out
    assert "rank 0" in shown and "rank 1" in shown


def test_a_failing_rank_ends_the_cell_on_the_others(crew: Engines, notebook: Notebook) -> None:
    """Long before the collective's own timeout; both errors are shown, and a new group works."""
    begun = time.monotonic()
    with pytest.raises(CompositeError) as caught:
        notebook.px("if rank == 1: raise ValueError('no data')\ndist.all_reduce(x)")
    assert time.monotonic() - begun < HANG < crew.cell_timeout
    assert "no data" in str(caught.value)
    assert {error[0] for error in caught.value.elist} == {"ValueError", "RuntimeError"}
    crew.join()
    notebook.px("dist.all_reduce(x)")


def test_a_failing_rank_ends_a_backward_pass_too(crew: Engines, notebook: Notebook) -> None:
    """DDP keeps the group's connections open even when the group is destroyed."""
    notebook.px("ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))")
    begun = time.monotonic()
    notebook.px("if rank == 0: raise ValueError('no data')\nddp(x).sum().backward()", "--noblock")
    outcomes = crew.outcomes()
    assert time.monotonic() - begun < HANG
    assert outcomes.outcome[0] == "ValueError: no data"
    assert outcomes.outcome[1].startswith("RuntimeError: ")
    assert outcomes.seconds.notna().all()


@pytest.mark.parametrize(
    "cell",
    [
        "if rank == 0: dist.all_reduce(x)",  # the other has done its part and is idle
        soak("dist.all_reduce(x) if rank else dist.broadcast(x, 1)\ntime.sleep(600)"),
        "while rank == 1: pass",
        soak("time.sleep(600)"),
    ],
    ids=["one waits", "both wait", "one computes", "both sleep"],
)
def test_a_cell_that_hangs_is_ended(crew: Engines, notebook: Notebook, cell: str) -> None:
    crew.cell_timeout = CELL_TIMEOUT
    begun = time.monotonic()
    with pytest.raises(CompositeError):
        notebook.px(cell)
    assert time.monotonic() - begun < HANG
    crew.cell_timeout = 2.0 * HANG
    crew.join()
    notebook.px("dist.all_reduce(x)")


def test_ctrl_c_frees_the_ranks(crew: Engines, notebook: Notebook) -> None:
    threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        notebook.px("if rank == 0: dist.all_reduce(x)\nelse: time.sleep(600)")
    assert time.monotonic() - begun < HANG
    crew.join()
    notebook.px("dist.all_reduce(x)")


@pytest.mark.parametrize(
    "cell",
    [
        soak("if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(x)"),
        soak("while rank == 1:\n    try: time.sleep(600)\n    except BaseException: pass"),
    ],
    ids=["killed", "stubborn"],
)
def test_an_engine_that_has_ended_is_named(notebook: Notebook, cell: str) -> None:
    with start(2, cell_timeout=CELL_TIMEOUT) as crew:
        crew.join()
        notebook.px(PREPARE)
        begun = time.monotonic()
        notebook.px(cell, "--noblock")
        outcomes = crew.outcomes()
        assert time.monotonic() - begun < HANG
        assert "died" in outcomes.outcome[1]
        for ask in (crew.join, lambda: notebook.px("x")):
            with pytest.raises(EnginesError, match="engine 1 has ended"):
                ask()
