"""Cells on two engines: what they do, that a rank that fails does not keep the others, and who reaches them."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from ipyparallel import Client
from ipyparallel.error import AlreadyDisplayedError

from hpc_utils.interactive.engines import Engines, EnginesError, start
from hpc_utils.workspace import Launch

from .conftest import HANG, Notebook, members

PREPARE = """
import os, signal, time
import torch
import torch.distributed as dist
rank, x = dist.get_rank(), torch.ones(4)
"""


@dataclass(frozen=True)
class Running:
    """A set of engines and its folder."""

    crew: Engines
    folder: Path


@pytest.fixture(scope="module")
def running(notebook: Notebook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two engines that were started in a run, by a user with a start-up file."""
    place = tmp_path_factory.mktemp("private")
    startup = place / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("started_up = True\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(place))
        patch.setenv("IPYTHONDIR", str(place / "ipython"))
        patch.setenv("HPC_LAUNCH", Launch(run="/a/run").variables["HPC_LAUNCH"])
        with start(2) as crew:
            (folder,) = place.glob("hpc-engines-*")
            yield Running(crew, folder)


def test_nobody_else_reaches_them(running: Running) -> None:
    """Before they join: the store of their process group listens on all addresses."""
    assert stat.S_IMODE(running.folder.stat().st_mode) == 0o700
    files = {side: next(running.folder.glob(f"security/ipcontroller-*-{side}.json")) for side in ("client", "engine")}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}
    address = json.loads(files["client"].read_text())
    with pytest.raises(TimeoutError):
        Client(address | {"key": "guessed"}, timeout=1)
    connections = [one for process in members(running.folder) for one in process.net_connections(kind="inet")]
    assert {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


@pytest.fixture
def crew(running: Running, notebook: Notebook) -> Engines:
    """Two ranks in a new group."""
    running.crew.join()
    notebook.px(PREPARE)
    return running.crew


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


def test_a_failing_rank_ends_a_backward_pass_on_the_others(
    crew: Engines, notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    """By gloo's time-out, although DDP keeps the group's connections open; both errors are shown, and a new group works."""
    crew.join(timeout=2)
    notebook.px("ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))")
    with pytest.raises(AlreadyDisplayedError):
        notebook.px("if rank == 0: raise ValueError('no data')\nddp(x).sum().backward()")
    errors = capsys.readouterr().err
    assert "no data" in errors and "RuntimeError" in errors
    outcomes = crew.outcomes()
    assert outcomes.outcome[0] == "ValueError: no data" and outcomes.outcome[1].startswith("RuntimeError: ")
    assert outcomes.seconds.notna().all() and outcomes.seconds[1] < HANG
    crew.join()
    notebook.px("dist.all_reduce(x)")


def test_ctrl_c_interrupts_the_engines(crew: Engines, notebook: Notebook) -> None:
    threading.Timer(1, signal.raise_signal, [signal.SIGINT]).start()
    begin = time.monotonic()
    notebook.px("time.sleep(600)")
    notebook.px("dist.all_reduce(x)")
    assert time.monotonic() - begin < HANG


def test_they_take_over_no_run_or_start_up_file(crew: Engines) -> None:
    for record in crew.view.apply(os.getenv, "HPC_LAUNCH"):
        assert not Launch.of({"HPC_LAUNCH": record}).run
    crew.view.execute("known = 'started_up' in globals()", block=True)
    assert crew.view["known"] == [False, False]


@pytest.mark.soak
def test_an_engine_that_has_ended_is_named(notebook: Notebook) -> None:
    """The last test here: cells run in the set that started last."""
    with start(2) as crew:
        crew.join(timeout=2)
        notebook.px(PREPARE)
        cell = "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(x)"
        notebook.px(cell, "--noblock")
        assert "died" in crew.outcomes().outcome[1]
        with pytest.raises(EnginesError, match="have ended"):
            crew.join()
