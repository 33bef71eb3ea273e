"""Ranks that are forks: what they compute, what they inherit, and when they are new processes instead."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch

from hpc_utils import records, workspace
from hpc_utils.config import ConfigError
from hpc_utils.launch import forkserver, preload
from hpc_utils.records.folder import read_json
from tests.train.support import same

from .conftest import PARAMETERS, TRAIN, Bench, kept

# What a process has, as far as another could have changed it; then all of it is changed.
LOOK = """
import json, multiprocessing, os, random, signal, sys, threading
import matplotlib, numpy, torch
import mine

look = {
    "environment": {name: value for name, value in os.environ.items() if name != "HPC_LAUNCH"},
    "folder": os.getcwd(), "path": sys.path, "argv": sys.argv, "mine": mine.value,
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "umask": os.umask(0o22), "umask again": os.umask(0o22) and None,
    "threads": len(os.listdir("/proc/self/task")), "torch threads": torch.get_num_threads(),
    "torch": torch.rand(3).tolist(), "style": str(matplotlib.rcParams),
    "modules": sorted(name for name in sys.modules if name.startswith("hpc_utils")),
    "main": sys.modules["__main__"].__name__, "session": os.getsid(0) == os.getpid(),
    "workers": multiprocessing.get_start_method(),
}
print(json.dumps(look), flush=True)
print(json.dumps([random.random(), float(numpy.random.rand())]), flush=True)

os.environ.update(LEFT="1", PATH="/nowhere")
os.chdir("/")
os.umask(0)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
random.seed(0), numpy.random.seed(0), torch.manual_seed(1)
torch.set_num_threads(4)
matplotlib.rcParams["font.size"] = 77
sys.path.insert(0, "/left")
"""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: int) -> Run:
    """`run(name, code, VARIABLE=value)`: run a module as a fork; its exit code and its output."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, code: str, **variables: str) -> tuple[int, str]:
        (tmp_path / f"{name}.py").write_text(code)
        log = tmp_path / f"{name}.log"
        log.write_text("")
        with workspace.using(**variables):
            return forkserver.run(name, log=log), log.read_text()

    return run


def test_a_run_of_forks_is_the_same_measurement_as_one_of_new_processes(bench: Bench) -> None:
    look = "import sys\nprint('loaded', *sorted({'pandas', 'seaborn', 'matplotlib'} & set(sys.modules)))"
    notebook = bench.notebook(look, TRAIN, parameters=PARAMETERS + "save_weights = True\n")
    weights = []
    learnt = []
    for start, options in (("warm", []), ("cold", ["--cold"])):
        outcome = bench.hpc("run", notebook, "--nproc", 2, "--redo", *options)
        assert outcome.code == 0, outcome.err
        assert read_json(bench.run / "provenance.json")["start"] == start
        weights.append(torch.load(bench.run / "weights.pt", weights_only=True))
        learnt.append(records.load_run(bench.run)["epochs"][["epoch", "steps", "samples", "lr", "train_loss"]])
    assert "loaded\n" in (bench.run / "logs/rank1.log").read_text()  # what only rank 0's cells need, no rank imports
    assert same(*weights) and learnt[0].equals(learnt[1])


def test_nothing_of_a_run_is_there_in_the_next(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("value = 1")
    (code, first), (_, second) = run("look", LOOK), run("look", LOOK)
    assert code == 0, first
    assert first.splitlines()[0] == second.splitlines()[0]
    assert first.splitlines()[1] != second.splitlines()[1], "random numbers that nobody has seeded repeat"
    (tmp_path / "mine.py").write_text("value = 'another'")
    seen = json.loads(run("look", LOOK, MORE="é")[1].splitlines()[0])
    assert (seen["mine"], seen["environment"]["MORE"]) == ("another", "é")
    assert seen["threads"] == 1 and seen["session"] and seen["workers"] == "fork"
    assert seen["folder"] == str(tmp_path) == seen["path"][0] and seen["main"] == "__main__"


@pytest.mark.parametrize(
    ("code", "status", "output"),
    [
        ("import atexit; atexit.register(print, 'end')", 0, "end\n"),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('why')", 1, "why\n"),
        ("import os; os.abort()", -signal.SIGABRT, ""),
        ("import os; print('half', end='', flush=True); os.kill(os.getpid(), 9)", -signal.SIGKILL, "half"),
        ("import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(600)", 0, ""),
    ],
    ids=["ends", "exits", "says", "aborts", "killed", "leaves"],
)
def test_a_fork_ends_as_a_process_would_and_leaves_nothing(
    run: Run, server: int, code: str, status: int, output: str
) -> None:
    assert run("ends", code) == (status, output)
    assert psutil.Process(server).children(recursive=True) == []


def test_another_environment_for_what_is_read_at_start_is_a_new_process(run: Run) -> None:
    look = "from hpc_utils import provenance, workspace\nprint(provenance.start, workspace.launch().cold)"
    assert run("look", look) == (0, "warm \n")
    code, output = run("look", look, OMP_NUM_THREADS="7")
    assert code == 0 and output.startswith("cold OMP_NUM_THREADS")


def test_cuda_threads_or_changed_code_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preload, "environment", dict(os.environ))
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)  # other tests of this process may import it
    assert preload.refusal() == ""
    for owner, name, value, reason in (
        (torch.cuda, "is_initialized", lambda: True, "CUDA"),
        (torch.version, "hip", "6.2", "HIP"),
        (preload, "threads", ["jemalloc_bg_thd"], "jemalloc_bg_thd"),
        (preload, "code", set(), "hpc_utils changed"),
        (preload, "broken", "no torch", "no torch"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, value)
            assert reason in preload.refusal()


@pytest.mark.soak
def test_a_script_without_a_guard_may_start_a_run(bench: Bench) -> None:
    """multiprocessing would run it again in every rank."""
    script = bench.folder / "script.py"
    script.write_text(
        "from pathlib import Path\nfrom hpc_utils.launch import local\nfrom hpc_utils.launch.request import prepare\n"
        f"print(local.run(prepare(Path({str(bench.notebook('1 + 1', TRAIN))!r}), {{'parallel': 'none'}})))\n"
    )
    environment = workspace.child_environment() | {"HPC_RESULTS": str(bench.results)}
    done = subprocess.run([sys.executable, script], cwd=bench.folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{bench.run}\n"


def test_a_killed_forkserver_ends_the_run_and_leaves_nothing(bench: Bench) -> None:
    running = bench.start("run", bench.notebook(TRAIN), "--nproc", 2, FAULT="hang")
    bench.wait_for((bench.folder / "hanging").exists)
    for process in psutil.Process(bench.hpc_pid).children():
        process.kill()
    assert running.end().code == 1
    assert bench.left() == []
    assert bench.status()["state"] == "failed" and kept(bench.run)


def test_ranks_that_could_not_meet_are_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", unreachable)
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1"):
        forkserver.LocalRanks([], 2, {}, tmp_path / "log", cold=False)
