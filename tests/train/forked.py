"""Ranks that are there in milliseconds: real processes, forked from one that has imported torch already.

A launch by torchrun costs seconds, of which nearly all goes into importing. These ranks join a real process group over
gloo, get signals and are killed like any other.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  (once for all ranks)
import torch
import torch._inductor  # optimizers do
import torch.distributed as dist

from hpc_utils import paths, records
from hpc_utils.config import RunConfig
from hpc_utils.launch import forkserver
from hpc_utils.signals import Stopped
from hpc_utils.train import train
from tests.support import LAUNCHED

from .support import Weights, saved

HANG = 500.0  # s


def _context() -> ForkServerContext:
    with contextlib.chdir(paths.root()):  # where it finds this module; it says nothing if it does not
        forkserver.start()  # a test may have ended it
    return multiprocessing.get_context("forkserver")


class Ranks:
    """The ranks of one attempt at a run, and what each printed, in `folder`."""

    def __init__(self, count: int, body: Callable[..., Any], *arguments: Any, folder: Path, results: Path) -> None:
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        place = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1"}
        place |= {"MASTER_PORT": self._store.port, "HPC_RESULTS": results}
        place |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
        folder.mkdir(parents=True, exist_ok=True)
        self.logs = [folder / f"rank{rank}.log" for rank in range(count)]
        self.processes: list[BaseProcess] = []
        for rank, log in enumerate(self.logs):
            environment = {name: str(value) for name, value in (place | {"RANK": rank, "LOCAL_RANK": rank}).items()}
            process = _context().Process(target=_rank, args=(body, arguments, environment, folder, log))
            process.start()
            self.processes.append(process)

    def signal(self, rank: int, number: signal.Signals) -> None:
        if self.processes[rank].is_alive():
            os.kill(self.processes[rank].pid, number)

    def end(self) -> list[int]:
        """Wait for them all; their exit codes. As under torchrun, when one fails the others get SIGTERM.

        None is left, whatever happens.
        """
        deadline = time.monotonic() + HANG
        left, failed = list(self.processes), False
        try:
            while left:
                wait([process.sentinel for process in left], max(0.0, deadline - time.monotonic()))
                assert time.monotonic() < deadline, f"rank still running after {HANG} s:\n{self.output()}"
                left = [process for process in left if process.is_alive()]
                if not failed and any(process.exitcode for process in self.processes):
                    failed = True
                    for process in left:
                        process.terminate()
        finally:
            for process in self.processes:
                process.kill()
                process.join()
        return [process.exitcode for process in self.processes]

    def output(self) -> str:
        return "\n".join(log.read_text() for log in self.logs if log.exists())


class Two:
    """What two ranks left in `folder`: each in `reports.rank<N>.json` what `body` returned, {name: {"run": id, ...}}."""

    def __init__(self, body: Callable[[], Mapping[str, Any]], folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        ranks = Ranks(2, _report, body, folder=folder, results=self.results)
        assert ranks.end() == [0, 0], ranks.output()
        self.out = ranks.output()
        self.reports = [json.loads((folder / f"reports.rank{rank}.json").read_text()) for rank in range(2)]

    def of(self, name: str, what: str) -> list[Any]:
        """What each rank has reports of a run."""
        return [reports[name][what] for reports in self.reports]

    def path(self, name: str) -> Path:
        return self.results / "runs" / self.reports[0][name]["run"]

    def tables(self, name: str) -> dict:
        return records.load_run(self.path(name))

    def saved(self, name: str) -> Weights:
        return saved(self.path(name))

    def weights(self, name: str) -> list[Weights]:
        """Each rank's."""
        return [torch.load(self.folder / f"{name}.rank{rank}.pt") for rank in range(2)]


def _report(body: Callable[[], Mapping[str, Any]]) -> None:
    Path(f"reports.rank{os.environ['RANK']}.json").write_text(json.dumps(body()))


def trained(parameters: Mapping[str, Any]) -> None:
    """What a rank does: train."""
    train(RunConfig(**parameters))


def _rank(
    body: Callable[..., Any], arguments: Sequence[Any], environment: Mapping[str, str], folder: Path, log: Path
) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    multiprocessing.set_start_method("fork", force=True)  # as in a rank of its own
    for name in LAUNCHED:
        os.environ.pop(name, None)
    os.environ.update(environment)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
    torch.set_num_threads(1)  # as under torchrun
    code = 1
    try:
        body(*arguments)
        code = 0
    except Stopped as stopped:
        print(stopped, flush=True)
        code = stopped.exit_code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)
