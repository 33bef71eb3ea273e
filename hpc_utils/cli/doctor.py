"""`hpc doctor`: is this machine ready to measure?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

LATE = 60.0  # s over its time after which an examination is ended that did not end itself
POLL = 0.05  # s between looks at whether it is over
MARK = "HPC_DOCTOR"  # tells the examination's processes from all others


@click.command()
@click.option("--nproc", default=1, show_default=True, type=click.IntRange(1), help="Ranks on this machine.")
def doctor(nproc: int) -> None:
    """Is this machine, or this cluster, ready to measure? At most two minutes.

    Looks at the driver and torch, devices and cores, the network, storage, Slurm, clocks, and says pass, fail or
    unknown, with what to do. The report is kept under results/doctor. The exit code is 1 if something fails.
    """
    report = examine(nproc)
    sys.exit(1 if report["verdict"] == "fail" else 0)


class NoReport(RuntimeError):
    """The examination itself ended without a report."""

    exit_code = 1


def examine(nproc: int) -> dict[str, Any]:
    """Examine this machine with `nproc` ranks; they print the table. Returns doctor.json's content.

    Raises:
        NoReport: the ranks ended without one; what they printed says why.
        KeyboardInterrupt: Ctrl-C; every process is gone.
    """
    from hpc_utils.launch.lifeline import end_tree
    from hpc_utils.probe.bench import SECONDS

    with tempfile.TemporaryDirectory(prefix="hpc-doctor-") as folder:
        copy = Path(folder) / "doctor.json"
        process = subprocess.Popen(
            _command(nproc, copy),
            env=_environment(folder),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is ours to deal with
        )
        try:
            end = time.monotonic() + SECONDS + LATE
            while process.poll() is None and not copy.exists() and time.monotonic() < end:
                time.sleep(POLL)
        finally:  # at once: the launcher would wait for ranks that hang, and those that are asked to end would report
            process.kill()
            end_tree(process, (MARK, folder))
        if not copy.exists():
            raise NoReport("the ranks ended, or were ended, without a report: what they printed says why")
        return json.loads(copy.read_text())


def _command(nproc: int, copy: Path) -> Sequence[str]:
    from hpc_utils.probe.surroundings import leftovers

    # The address is given, because without it torchrun waits for ever where the host's name does not resolve,
    # and that is one of the things to find out.
    return [
        *(sys.executable, "-m", "hpc_utils.launch.torchrun"),
        *("--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={nproc}", "-m", "hpc_utils.probe"),
        f"--inherited={','.join(leftovers(os.environ))}",
        f"--torch={_build()}",
        f"--copy={copy}",
    ]


def _environment(folder: str) -> dict[str, str]:
    """No trace of a launcher that we may run under; torchrun would set one OpenMP thread anyway, and warn."""
    from hpc_utils.launch.lifeline import PARENT
    from hpc_utils.probe.surroundings import leftovers

    clean = {name: value for name, value in os.environ.items() if name not in leftovers(os.environ)}
    return {"OMP_NUM_THREADS": "1"} | clean | {PARENT: str(os.getpid()), MARK: folder}


def _build() -> str:
    """The torch build that the cluster file names, if HPC_CLUSTER (`<cluster>-<node type>`) says that this is one."""
    from hpc_utils.launch import cluster

    here = os.environ.get("HPC_CLUSTER", "")
    names = [name for name in cluster.known() if here == name or here.startswith(f"{name}-")]
    return cluster.read(max(names, key=len)).software.torch if names else ""
