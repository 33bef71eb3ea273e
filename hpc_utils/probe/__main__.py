"""What every rank runs; rank 0 prints the table and keeps the report.

    torchrun ... -m hpc_utils.probe [--device cpu] [--torch cu126] [--link-gbit 100] [--seconds 120] [--copy FILE]

Exit code 0 if the report was made, whatever it says: a launcher would take another for a crash and print pages. Only
where ranks never appeared it is 1, which has the launcher end them. `--copy` has rank 0 write doctor.json there too,
for whoever started this and wants the verdict.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from hpc_utils.probe import process, report
from hpc_utils.probe.bench import SECONDS, Bench, Options
from hpc_utils.probe.box import boxed
from hpc_utils.probe.check import Check, Verdict
from hpc_utils.records import atomic

if TYPE_CHECKING:
    from hpc_utils.probe.conduct import Conductor

LATE = 45.0  # s over its time after which a rank ends itself: it may have begun before rank 0
KEEPING = 8.0  # s: the results may lie on a file system that hangs


class Ended(BaseException):
    """SIGTERM: the launcher ends the ranks, because one of them died or the job is over."""


def main(arguments: list[str]) -> int:
    """Look, and on rank 0 judge and report; the exit code."""
    asked = _arguments(arguments)
    out, err = process.begin(asked.seconds + LATE)
    inherited = tuple(filter(None, asked.inherited.split(",")))
    options = Options(asked.seconds, asked.device, asked.torch, asked.link_gbit, inherited)
    if int(os.environ.get("RANK", 0)) == 0:
        return _lead(options, asked.copy, out, err)
    try:
        conductor = _conductor(options)
        conductor.follow()
        conductor.bench.tidy()
    except (OSError, RuntimeError) as error:  # rank 0 reports that this one is missing
        print(f"rank {os.environ['RANK']} on {socket.gethostname()}: {error}", file=err)
    return 0


def _conductor(options: Options) -> Conductor:
    """This rank, ready to look.

    Raises:
        OSError, RuntimeError: the launcher's store cannot be reached.
    """
    from hpc_utils.probe.conduct import Conductor  # torch, which takes seconds
    from hpc_utils.probe.exchange import Exchange
    from hpc_utils.probe.plan import PLAN

    return Conductor(Bench.from_environment(options, Exchange.open(options.seconds / 2)), PLAN)


def _lead(options: Options, copy: Path | None, out: TextIO, err: TextIO) -> int:
    """Print each check as it is made, then keep the report; 1 if ranks are missing."""
    began, live = time.monotonic(), err.isatty()
    checks: list[Check] = []
    conductor = None

    def say(what: str) -> None:
        if live:
            print(f"\r\x1b[K  looking at {what} ...", end="", file=err, flush=True)

    def show(check: Check) -> None:
        checks.append(check)
        print("\r\x1b[K" * live, end="", file=err, flush=True)
        print(report.line(check, out.isatty()), file=out, flush=True)

    signal.signal(signal.SIGTERM, _raise_ended)
    try:
        conductor = _conductor(options)
        for check in conductor.lead(say):
            show(check)
        conductor.bench.tidy()
    except Ended:
        fix = "read what the ranks printed: did one of them die? Was the job cancelled, or its time over?"
        show(Check(Verdict.FAIL, "the launcher ended the ranks before all was looked at", fix=fix, name="launcher"))
    except (OSError, RuntimeError) as error:
        fix = "read what the launcher printed: is its store, at MASTER_ADDR, reachable and alive?"
        show(Check(Verdict.FAIL, f"the examination broke off: {error}"[:300], fix=fix, name="launcher"))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher gives 30 s, the report takes less
    made = report.make(checks, conductor, time.monotonic() - began)
    print(f"\n{report.summary(made, out.isatty())}", file=out)
    kept = boxed(lambda: report.archive(made), KEEPING)
    said = f"report: {kept['facts'] / 'doctor.md'}" if "facts" in kept else f"the report could not be kept: {kept}"
    print(said, file=out, flush=True)
    if copy:
        atomic.write_json(copy, made)
    return 0 if conductor and conductor.complete else 1


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hpc_utils.probe", description="Is this machine ready to measure?")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="that the study uses")
    parser.add_argument("--torch", default="", help="build that the cluster file names, such as cu126")
    parser.add_argument(
        "--link-gbit", type=float, default=0.0, help="nominal link of a node in Gbit/s; 0: ask the system"
    )
    parser.add_argument("--inherited", default="", help="variables of another launcher, with commas between")
    parser.add_argument("--copy", type=Path, help="write doctor.json there too")
    return parser.parse_args(arguments)


def _raise_ended(*_: object) -> NoReturn:
    raise Ended


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # looks that hang are left behind, and so is the process group (see Ranks.settle)
