"""Signals on their way: from whoever starts `hpc run`, through its launcher, to the ranks; and what becomes of the run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from signal import SIGINT, SIGTERM, SIGUSR1

import psutil
import pytest

from hpc_utils import records
from hpc_utils.launch.process_tree import GRACE
from hpc_utils.records.folder import read_json, state
from tests.support import soak
from tests.train.support import Weights, same, saved, small_disk

from .conftest import PARAMETERS, TRAIN, Bench, Started, kept

# Small steps, and many: nothing sleeps, and a signal finds them in training.
STEPS = 800
LONG = PARAMETERS.replace("steps_per_epoch = 6", f"steps_per_epoch = {STEPS}").replace("epochs = 1", "epochs = 2")
LONG += "save_weights = True\nlr = 0.01\nglobal_batch = 8\n"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.fixture
def run(bench: Bench) -> Callable[..., Started]:
    """`run(...)` starts `hpc run` of the long training, each time in the same way."""
    notebook = bench.notebook(TRAIN, parameters=LONG)
    return lambda *more, nproc=2: bench.start("run", notebook, "--nproc", nproc, *more)


def step(bench: Bench) -> int:
    """How far the one run is."""
    return (read_json(bench.run / "progress.json") or {}).get("step", 0) if bench.runs else 0


def ranks(bench: Bench) -> list[psutil.Process]:
    """The forks of the forkserver of `hpc`."""
    return [rank for process in psutil.Process(bench.hpc_pid).children() for rank in process.children()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, server: int) -> Weights:
    """The weights of the same run on two ranks without a signal."""
    bench = Bench(tmp_path_factory.mktemp("undisturbed"), server)
    outcome = bench.hpc("run", bench.notebook(TRAIN, parameters=LONG), "--nproc", 2)
    assert outcome.code == 0, outcome.err
    return saved(bench.run)


def require_stopped(bench: Bench, number: signal.Signals, *, code: int, outcome) -> None:
    """In order, and said everywhere; nothing is left running."""
    assert outcome.code == code, outcome.err
    assert f"stopped: {bench.run.name}: {number.name} at epoch" in outcome.err
    assert "Traceback" not in outcome.err
    assert bench.left() == []
    assert bench.status()["reason"].startswith(f"{number.name} at epoch")
    assert records.load(bench.results).unfinished == {bench.run.name: "stopped"}
    first = kept(bench.run).cells[0].source
    assert "was stopped" in first and "FAILED" not in first
    assert 1 <= len(list((bench.run / "checkpoints").iterdir())) <= 2  # the last one, and the one before it


@pytest.mark.soak  # tests/slurm does it with a job's time limit
def test_a_run_that_is_stopped_twice_ends_as_an_uninterrupted_one(bench, run, undisturbed):
    """A scheduler may tell a single rank on another node; then, under another launcher, the launcher, more than once."""
    running = run()
    bench.wait_for(lambda: step(bench))
    ranks(bench)[1].send_signal(SIGUSR1)
    require_stopped(bench, SIGUSR1, code=75, outcome=running.end())

    running = run("--", *TORCHRUN)
    bench.wait_for(lambda: step(bench) > STEPS)  # it goes on, in the second epoch now
    running.process.send_signal(SIGTERM)
    running.process.send_signal(SIGTERM)
    require_stopped(bench, SIGTERM, code=143, outcome=running.end())

    outcome = run().end()
    assert outcome.code == 0, outcome.err
    assert same(saved(bench.run), undisturbed)
    assert records.load_run(bench.run)["epochs"].steps.tolist() == [STEPS, STEPS]
    assert read_json(bench.run / "run.json")["restarts"] == 2


@pytest.mark.parametrize(
    "there",
    [
        lambda bench: bench.runs,  # the run is claimed
        soak(lambda bench: ranks(bench)),  # a rank is starting
        soak(lambda bench: len(list(bench.results.glob("runs/*/logs/rank*.log"))) == 2),  # they import
        soak(lambda bench: list(bench.results.glob("runs/*/run.json"))),  # they have found each other
    ],
    ids=["claimed", "rank", "imports", "joined"],
)
def test_usr1_at_any_moment_of_the_start_is_not_lost_and_kills_no_process(bench, run, there):
    running = run()
    bench.wait_for(lambda: there(bench))
    running.process.send_signal(SIGUSR1)
    outcome = running.end()
    require_stopped(bench, SIGUSR1, code=75, outcome=outcome)
    assert "SIGUSR1 at epoch 1, step" in bench.status()["reason"]


@pytest.mark.soak  # tests/train sends its process the same signals
def test_ctrl_c_of_one_plain_process_keeps_its_checkpoint(bench, run):
    plain = ["-p", "parallel=none"]
    running = run(*plain, nproc=1)
    bench.wait_for(lambda: step(bench))
    begun = time.monotonic()
    running.process.send_signal(SIGINT)
    outcome = running.end()
    assert outcome.code == 130 and "interrupted" in outcome.err
    assert time.monotonic() - begun < GRACE
    assert bench.left() == []
    assert bench.status()["reason"].startswith("interrupted; SIGTERM at epoch")
    assert run(*plain, nproc=1).end().code == 0


@pytest.mark.soak
def test_a_full_disk_is_named_when_no_rank_could_leave_a_word(bench, run):
    with small_disk(1) as disk:
        bench.results.symlink_to(disk)
        running = run()
        bench.wait_for(lambda: step(bench))
        with pytest.raises(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        outcome = running.end()
        assert outcome.code == 1 and "No space left on device" in outcome.err
        assert bench.left() == []
        (disk / "ballast").unlink()
        assert state(bench.run) in ("failed", "dead")
        assert run("-p", "save_weights=false").end().code == 0
        bench.results.unlink()


def answer(client, cell: str) -> dict:
    """The kernel's reply to that cell; what it replied to others, late, is passed over."""
    while True:
        message = client.get_shell_msg(timeout=60)
        if message["parent_header"]["msg_id"] == cell:
            return message["content"]


@pytest.mark.soak  # tests/train sends its process the same signals
def test_a_cell_in_jupyter_stops_and_its_kernel_lives(bench, monkeypatch):
    from jupyter_client.manager import start_new_kernel

    monkeypatch.setenv("HPC_RESULTS", str(bench.results))
    monkeypatch.setenv("PYTHONPATH", str(bench.folder))
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(bench.folder))
    try:
        answer(client, client.execute(LONG))
        said = answer(client, client.execute("import os", user_expressions={"pid": "os.getpid()"}))
        pid = int(said["user_expressions"]["pid"]["data"]["text/plain"])
        cell = client.execute(TRAIN, stop_on_error=False)  # else the kernel may abort the next cell too
        bench.wait_for(lambda: step(bench))
        os.kill(pid, SIGTERM)
        said = answer(client, cell)
        assert (said["status"], said["ename"]) == ("error", "Stopped")
        assert state(bench.run) == "stopped"
        assert answer(client, client.execute("result = train(config)"))["status"] == "ok"
        assert state(bench.run) == "complete"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


TOLD = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"


def test_stopped_twice_at_the_same_step_is_not_asked_to_be_run_again(bench: Bench) -> None:
    """Else a job whose limit is too short for a single step would go back into its queue for ever."""
    notebook = bench.notebook(TOLD, TRAIN)
    first = bench.hpc("run", notebook, "-p", "parallel=none")
    assert first.code == 75, first.err
    second = bench.hpc("run", notebook, "-p", "parallel=none")
    assert second.code == 1
    assert bench.status()["state"] == "stopped", "nothing is lost"
