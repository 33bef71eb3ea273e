"""The process of a rank of doctor and benches: it ends with its launcher, and output of libraries is dropped."""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from hpc_utils import workspace

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

Parsed = TypeVar("Parsed")
LOAD = 0.05  # share of a rank's cores that others may use while something is measured
ROUNDING = 0.02  # s: the kernel counts processor time in steps of 10 ms


@dataclass(frozen=True)
class Console:
    """Prints on rank 0 only: lines that stay, and on a terminal the measurement under way."""

    shown: bool

    def progress(self, what: str = "") -> None:
        """Replace the progress line; without `what` clear it."""
        if self.shown and sys.stderr.isatty():
            text = f"  measuring {what} ..." if what else ""
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def line(self, text: str) -> None:
        if self.shown:
            self.progress()
            click.echo(text)  # in colour on a terminal only


def run_with_timeout(function: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """{"facts": what `function` returns}, {"error": what it raises}, or {"timeout": seconds}: then it is left running."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["facts"] = function()
        except Exception as error:
            outcome["error"] = f"{type(error).__name__}: {error}"[:300]

    thread = threading.Thread(target=run, daemon=True)  # a hanging system call cannot be interrupted
    thread.start()
    thread.join(seconds)
    return dict(outcome) or {"timeout": seconds}


def repeats_within(ranks: Ranks, repeats: int, seconds: float, console: Console) -> Iterator[int]:
    """Yield 1, 2, ... `repeats`, fewer if they do not fit into `seconds`; all ranks get the same numbers."""
    began = time.perf_counter()
    for repeat in range(1, repeats + 1):
        yield repeat
        mean = (time.perf_counter() - began) / repeat
        if repeat < repeats and ranks.broadcast((repeat + 1) * mean > seconds):
            console.line(f"only {repeat} of {repeats} repeats: each takes {mean:.0f} s")
            return


def slowest_seconds(ranks: Ranks, call: Callable[[], Any], times: int) -> float:
    """Seconds of one of `times` calls on the slowest rank: the same value on all ranks, so that they decide alike."""
    import torch

    ranks.barrier()
    began = time.perf_counter()
    for _ in range(times):
        call()
    ranks.synchronize()
    seconds = (time.perf_counter() - began) / times
    return float(ranks.max(torch.tensor([seconds], dtype=torch.float64)))


class LoadMeter:
    """Measures, from its creation on, how much of this rank's cores others use: other processes, and the hypervisor."""

    def __init__(self, ranks: Ranks) -> None:
        from hpc_utils.train.energy import EnergyMeter
        from hpc_utils.train.epoch_stats import UsageMeter

        self._ranks = ranks
        self._usage = UsageMeter(ranks, EnergyMeter())
        self._usage.start()

    def load(self) -> float | None:
        """Their share of the cores so far; None if it is unknown, or the rank has no cores of its own."""
        used = self._usage.stop()
        if "outside_seconds" not in used or not self._ranks.cores:
            return None
        seconds = used["outside_seconds"] + used["steal_seconds"]
        return max(0.0, seconds - ROUNDING) / used["seconds"] / self._ranks.threads

    def warn(self, tell: Callable[[str], None]) -> None:
        """Tell of a rank whose load is above `LOAD`. Collective."""
        load = max(self._ranks.gather(self.load() or 0.0), default=0.0)  # empty on all ranks but one
        if load > LOAD:
            tell(
                f"warning: others (processes or the hypervisor) used {load:.0%} of a rank's cores while this was measured: "
                "repeat it on a quiet machine"
            )


def parse(options: type[Parsed], arguments: Sequence[str]) -> Parsed:
    """An instance of a dataclass from a command line: `--link-gbit 100` for its field `link_gbit`."""
    parser = argparse.ArgumentParser(description=options.__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for field in fields(options):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    return options(**vars(parser.parse_args(arguments)))


def start(seconds: float, grace: float = 0.0) -> Console:
    """End this process with its launcher, and in any case after `seconds`; keep the terminal for `sys.stdout` and
    `sys.stderr`: what libraries print (gloo, NCCL) is dropped.

    With `grace` the process receives SIGTERM so many seconds before its end, which raises SystemExit.
    """
    if grace:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parent = workspace.launch().parent or os.getppid()  # it may have ended by now
    sys.stdout, sys.stderr = (os.fdopen(os.dup(stream), "w", encoding="utf-8") for stream in (1, 2))
    with tempfile.TemporaryFile() as dropped:
        for stream in (1, 2):
            os.dup2(dropped.fileno(), stream)
    faulthandler.enable(sys.stderr)
    threading.Thread(target=_end_with, args=(parent, grace), daemon=True).start()
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.stderr)  # also if the interpreter hangs
    return Console(int(os.environ.get("RANK", 0)) == 0)


def _end_with(parent: int, grace: float) -> NoReturn:
    while os.getppid() == parent:
        time.sleep(0.5)
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
    os._exit(1)
