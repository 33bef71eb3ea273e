"""Ranks that are forked from a warm process: what they compute, what they inherit, when they start cold instead."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

from hpc_utils import records, workspace
from hpc_utils.launch import warm
from hpc_utils.launch.warm import server
from hpc_utils.records.folder import read_json
from hpc_utils.workspace import Launch

from .conftest import PARAMETERS, TRAIN, Bench, kept, servers

# What a process has, as far as another could have changed it; then all of it is changed.
LOOK = """
import json, os, random, signal, sys, threading
import matplotlib, numpy, torch
import mine

look = {
    "environment": {name: value for name, value in os.environ.items() if name != "HPC_LAUNCH"},
    "folder": os.getcwd(), "path": sys.path, "argv": sys.argv, "mine": mine.value,
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "umask": os.umask(0o22), "umask again": os.umask(0o22) and None,
    "threads": len(os.listdir("/proc/self/task")), "torch threads": torch.get_num_threads(),
    "torch": torch.rand(3).tolist(), "style": str(matplotlib.rcParams),
    "descriptors": sorted(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0] for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
    "modules": sorted(name for name in sys.modules if name.startswith("hpc_utils")),
    "main": sys.modules["__main__"].__name__, "session": os.getsid(0) == os.getpid(),
}
print(json.dumps(look), flush=True)
print(json.dumps([random.random(), float(numpy.random.rand())]), flush=True)

os.environ.update(LEFT="1", PATH="/nowhere")
os.chdir("/")
os.umask(0)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
random.seed(0), numpy.random.seed(0), torch.manual_seed(1)
torch.set_num_threads(4)
(torch.rand(1000, 1000) @ torch.rand(1000, 1000)).sum()
matplotlib.rcParams["font.size"] = 77
left = [open(os.devnull) for _ in range(50)]
sys.path.insert(0, "/left")
threading.Thread(target=signal.pause, daemon=True).start()
"""


class Warm:
    """This process's warm process, and modules for it to run in a folder.

    Attributes:
        environment: of those who ask it. pid: the warm process.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.environment = workspace.child_environment() | Launch(warm=name).variables
        (self.pid,) = (one.pid for one in servers())

    def module(self, name: str, code: str) -> None:
        (self.folder / f"{name}.py").write_text(code)

    def start(self, name: str, **more: str) -> subprocess.Popen:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(warm.python("-m", name), cwd=self.folder, env=self.environment | more, **pipes)

    def run(self, name: str, **more: str) -> tuple[int, str, str]:
        process = self.start(name, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def forks(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, warm_process: str) -> Warm:
    return Warm(tmp_path_factory.mktemp("there"), warm_process)


def test_a_warm_run_is_the_same_measurement_as_a_cold_one(bench: Bench) -> None:
    look = "import sys\nprint('loaded', *sorted({'pandas', 'seaborn', 'matplotlib'} & set(sys.modules)))"
    notebook = bench.notebook(look, TRAIN, parameters=PARAMETERS + "save_weights = True\n")
    made = {}
    for how, more in (("warm", []), ("cold", ["--cold"])):
        outcome = bench.hpc("run", notebook, "--nproc", 2, "--redo", *more)
        assert outcome.code == 0, outcome.err
        assert read_json(bench.run / "provenance.json")["start"] == how
        made[how] = records.load_run(bench.run) | {"weights": torch.load(bench.run / "weights.pt", weights_only=True)}
        log = (bench.run / "logs" / "rank1.log").read_text()
    assert "loaded\n" in log  # what only rank 0's cells need, no rank imports
    warm_run, cold_run = made["warm"], made["cold"]
    assert all(torch.equal(warm_run["weights"][name], tensor) for name, tensor in cold_run["weights"].items())
    for table in ("epochs", "steps", "ranks"):
        one, other = warm_run[table], cold_run[table]
        assert list(one.columns) == list(other.columns) and len(one) == len(other)
    learnt = [name for name in cold_run["epochs"] if "loss" in name or name in ("samples", "steps", "lr", "epoch")]
    assert warm_run["epochs"][learnt].equals(cold_run["epochs"][learnt])
    assert warm_run["run"]["run_id"] == cold_run["run"]["run_id"]
    assert {*warm_run["run"]} == {*cold_run["run"]}


def test_nothing_of_a_run_is_there_in_the_next(there: Warm) -> None:
    there.module("look", LOOK)
    there.module("mine", "value = 1")
    (code, first, err), (_, second, _) = there.run("look"), there.run("look")
    assert code == 0, err
    assert first.splitlines()[0] == second.splitlines()[0]
    assert first.splitlines()[1] != second.splitlines()[1], "random numbers that nobody has seeded repeat"
    there.module("mine", "value = 'another'")
    seen = json.loads(there.run("look", MORE="é")[1].splitlines()[0])
    assert (seen["mine"], seen["environment"]["MORE"]) == ("another", "é")
    assert seen["threads"] == 1 and seen["session"]
    assert seen["folder"] == str(there.folder) == seen["path"][0] and seen["main"] == "__main__"


def test_a_fork_ends_as_its_process_would(there: Warm) -> None:
    for name, body, ended in (
        ("fine", "import atexit; atexit.register(print, 'end')", (0, "end\n", "")),
        ("three", "raise SystemExit(3)", (3, "", "")),
        ("says", "raise SystemExit('why')", (1, "", "why\n")),
        ("dies", "import os; os.kill(os.getpid(), 9)", (-9, "", "")),
        ("crashes", "import os; os.abort()", (-6, "", "")),
        ("unwritten", "import os; print('half', end=''); os.kill(os.getpid(), 9)", (-9, "half", "")),
    ):
        there.module(name, body)
        assert there.run(name) == ended
    there.module("fails", "1 / 0")
    code, _, err = there.run("fails")
    assert code == 1 and "fails.py" in err and "ZeroDivisionError" in err


def test_signals_reach_the_fork_and_it_ends_with_its_client(there: Warm) -> None:
    there.module(
        "hears",
        "import signal, subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '600'])\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('heard', flush=True))\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)",
    )
    process = there.start("hears")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "heard\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 7
    _gone(there)
    process = there.start("hears")
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.wait(20)
    _gone(there)


def test_what_a_run_leaves_behind_ends_with_it(there: Warm) -> None:
    there.module("leaves", "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(600)")
    assert there.run("leaves")[0] == 0
    _gone(there)


def _gone(there: Warm) -> None:
    """Wait until nothing is left of any run."""
    end = time.monotonic() + 20
    while there.forks() or len(psutil.Process(there.pid).net_connections("unix")) > 3:  # the listener and a pair
        assert time.monotonic() < end
        time.sleep(0.02)


def test_another_environment_for_what_is_read_at_start_is_refused(there: Warm) -> None:
    there.module(
        "look", "from hpc_utils import provenance, workspace\nprint(provenance.start, workspace.launch().cold)"
    )
    code, out, err = there.run("look", OMP_NUM_THREADS="7")
    assert code == 0, err
    assert out.startswith("cold ") and "OMP_NUM_THREADS" in out and "OMP_NUM_THREADS" in err


def test_cuda_threads_or_changed_code_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        serving, request = server.Server(listener), {"environment": dict(os.environ)}
        monkeypatch.setattr(server, "_threads", list)  # pytest itself may have several
        monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)  # other tests of this process may import it
        assert serving._refusal(request) == ""
        for owner, name, found, why in (
            (torch.cuda, "is_initialized", lambda: True, "CUDA"),
            (torch.version, "hip", "6.2", "HIP"),
            (server, "_threads", lambda: ["jemalloc_bg_thd"], "jemalloc_bg_thd"),
            (server, "_state_of_code", lambda: (0, 0), "hpc_utils changed"),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(owner, name, found)
                assert why in serving._refusal(request)


def test_threads_besides_the_main_one_are_found() -> None:
    before, end = server._threads(), threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert len(server._threads()) == len(before) + 1
    finally:
        end.set()
        thread.join()


def test_without_a_warm_process_the_client_is_python(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text("import sys; print(*sys.argv[1:])")
    for name in ("", warm.OFF, "hpc-warm-no-such"):
        done = subprocess.run(
            warm.python("-m", "look", "a b"), env=os.environ | Launch(warm=name).variables | {"PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "a b\n")


@pytest.mark.soak
def test_a_killed_warm_process_ends_the_run_and_leaves_nothing(bench: Bench) -> None:
    bench.warm = ""
    running = bench.start("run", bench.notebook(TRAIN), "--nproc", 2, FAULT="hang")
    bench.wait_for((bench.folder / "hanging").exists)
    (process,) = (
        one
        for one in psutil.Process(running.process.pid).children()
        if "hpc_utils.launch.warm.server" in one.cmdline()
    )
    process.kill()
    outcome = running.end()
    assert outcome.code == 1 and "exit code -9" in outcome.err
    assert bench.left() == []
    assert bench.status()["state"] == "failed" and kept(bench.run)


def test_other_users_are_not_served(there: Warm) -> None:
    if os.getuid():
        pytest.skip("root alone can be somebody else")
    there.module("look", "print('served')")
    assert there.run("look")[1] == "served\n"
    code = (
        "import os, socket, sys\n"
        "os.setuid(65534)\n"
        "connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        f"connection.connect('\\0{there.name}')\n"
        "print(connection.recv(100))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "b''\n", done.stderr
    assert there.run("look")[1] == "served\n"
