"""`hpc doctor`, as every rank runs it; rank 0 prints the table and writes the report.

    torchrun ... -m hpc_utils.doctor [--torch cu126] [--link-gbit 100] [--seconds 120] [--copy FILE]

`check.Options` documents the options. The exit code is 0 if the report was written, whatever its verdict: a launcher would
take another code for a crash. If ranks are missing it is 1, so that the launcher ends the others.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils.doctor import process, report
from hpc_utils.doctor.check import Context, Options, failed
from hpc_utils.records import atomic

if TYPE_CHECKING:
    from hpc_utils.doctor.runner import Runner

LATE = 45.0  # s over its time after which a rank ends itself: it may have started before rank 0
WRITING = 8.0  # s: the results may be on a file system that hangs


def main(arguments: list[str]) -> int:
    """Measure, and on rank 0 judge and report; the exit code."""
    options = process.parse(Options, arguments)
    console = process.start(options.seconds + LATE)
    if console.shown:
        return _lead(options, console)
    try:
        runner = _runner(options)
        runner.follow()
        runner.context.cleanup.close()
    except (OSError, RuntimeError) as error:  # rank 0 reports that this one is missing
        print(f"rank {os.environ['RANK']} on {socket.gethostname()}: {error}", file=sys.stderr)
    return 0


def _runner(options: Options) -> Runner:
    """Raises OSError or RuntimeError if the launcher's store cannot be reached."""
    from hpc_utils.doctor.mailbox import Mailbox  # imports torch, which takes seconds
    from hpc_utils.doctor.runner import Runner

    return Runner(Context.from_environment(options, Mailbox.connect(options.seconds / 2)))


def _lead(options: Options, console: process.Console) -> int:
    """Print each result as it is known, then write the report; 1 if ranks are missing."""
    began = time.monotonic()
    results = []
    runner = None
    # The launcher sends it if a rank died or the job is over.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        runner = _runner(options)
        for result in runner.lead(console.progress):
            results.append(result)
            console.line(report.row(result))
    except (KeyboardInterrupt, OSError, RuntimeError) as error:
        why = str(error) or "the launcher ended the ranks before all checks were made"
        fix = "read what the ranks and the launcher printed: did a rank die, is MASTER_ADDR reachable, is the time over?"
        results.append(failed(f"the checks ended early: {why}"[:300], fix, name="launcher"))
        console.line(report.row(results[-1]))
    if runner:
        process.run_with_timeout(runner.context.cleanup.close, WRITING)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher gives 30 s, the report takes less
    contents = report.make(results, runner, time.monotonic() - began)
    written = process.run_with_timeout(lambda: report.write_report(contents), WRITING)
    console.line(f"\n{report.summary(contents)}")
    console.line(f"report: {written['facts']}" if "facts" in written else f"no report written: {written}")
    if options.copy:
        atomic.write_json(Path(options.copy), contents)
    return 0 if runner and runner.complete else 1


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # hanging measurements and the process group are abandoned (see Ranks.settle)
