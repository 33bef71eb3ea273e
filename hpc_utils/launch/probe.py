"""A probe, started: a module of `hpc_utils.doctor` as ranks on this machine, or in a job on a cluster's nodes.

Either way rank 0 leaves its record as one JSON file where it is told to, and that file is the answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from hpc_utils import paths
from hpc_utils.doctor.check import count
from hpc_utils.doctor.environment import leftovers
from hpc_utils.records.folder import RUN_DIR, read_json

from . import allocation, diagnosis, slurm
from .cluster import Cluster, ClusterError
from .lifeline import PARENT, end_tree
from .request import Layout
from .submission import Submission

POLL = 0.05  # s between looks at whether it is over
MARK = "HPC_PROBE"  # tells the probe's processes from all others


class NoReport(RuntimeError):
    """The probe itself ended without a record."""

    exit_code = 1


def here(nproc: int, module: str, arguments: Sequence[str], *, seconds: float, grace: float = 0.0) -> dict[str, Any]:
    """Run `module` on `nproc` ranks of this machine, which print as they go; the record that rank 0 left.

    Args:
        seconds: after which ranks that did not end themselves are ended.
        grace: seconds that ranks have to tidy up when they are ended before they are done.

    Raises:
        NoReport: the ranks ended without one; what they printed says why.
        KeyboardInterrupt: Ctrl-C; every process is gone.
    """
    with tempfile.TemporaryDirectory(prefix="hpc-probe-") as folder:
        copy = Path(folder) / "record.json"
        process = subprocess.Popen(
            [*_torchrun(nproc), "-m", module, *arguments, f"--copy={copy}"],
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is ours to deal with
        )
        try:
            end = time.monotonic() + seconds
            while process.poll() is None and not copy.exists() and time.monotonic() < end:
                time.sleep(POLL)
        finally:
            if copy.exists() or not grace:  # at once: the launcher would wait for ranks that hang
                process.kill()
            end_tree(process, (MARK, folder), grace)
        if not copy.exists():
            raise NoReport("the ranks ended, or were ended, without a report: what they printed says why")
        return json.loads(copy.read_text())


def on_cluster(
    found: Cluster,
    node_type: str,
    layout: tuple[int, int],
    script: str,
    arguments: Sequence[str],
    tell: Callable[[str], None],
    *,
    measuring: AbstractContextManager[None] | None = None,
) -> tuple[str, dict[str, Any]]:
    """Submit `jobs/<script>` with `arguments`, and wait: (what the job printed, the record that rank 0 left).

    Args:
        layout: nodes, and ranks on each; 0 of those stands for one a device.
        tell: called with a line when the job is submitted.
        measuring: entered when the job's turn has come, left when it is over; if it cannot be entered, the job is
            cancelled. Not while it waits: what is before it in the queue must not find its links held.

    Raises:
        ClusterError, SlurmError: no such type of node, more ranks than it has devices, or Slurm refused the job.
        NoReport: it ended without an answer.
    """
    node = found.node(node_type)
    most = allocation.ranks_per_node(found, node)
    nodes, ranks = layout[0], layout[1] or most
    if ranks > most:
        raise ClusterError(f"{ranks} ranks on a node of type {node.name} of {found.name}: it has {most} devices")
    name = Path(script).stem
    made = Submission.begin(name, f"{name}-{found.hardware_id(node.name)}", found.name, node.name)
    allocation.write_environment(made.path, found, node)
    log = f"{allocation.literal(made.path)}/logs/%j.log"
    options = [*allocation.options(found, node, Layout(nodes, ranks)), f"--output={log}"]
    copy = made.path / "record.json"
    variables = allocation.variables(made.path, Layout(nodes, ranks))
    job = slurm.sbatch(options, paths.jobs() / script, [*arguments, f"--copy={copy}"], environment=variables)
    tell(f"job {job} on {count(nodes, 'node')} x {count(ranks, 'rank')}; waiting for it to start and end")
    try:
        slurm.wait(job, through=slurm.WAITING)
        with measuring or nullcontext():
            state = slurm.wait(job)
    except BaseException:  # Ctrl-C, or what it measures is in use
        slurm.scancel([job])
        raise
    said = diagnosis.log_text(made.path / "logs" / f"{job}.log")
    record = read_json(copy)
    if not record:
        raise NoReport(f"job {job} ended {state} and without a report:\n{said}")
    return said, record


def _torchrun(nproc: int) -> list[str]:
    # The address is given, because without it torchrun waits for ever where the host's name does not resolve,
    # and that is one of the things to find out.
    module = [sys.executable, "-m", "hpc_utils.launch.torchrun"]
    return [*module, "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={nproc}"]


def environment(folder: str) -> dict[str, str]:
    """No trace of a launcher or run that we may be part of; torchrun would set one OpenMP thread anyway, and warn."""
    traces = {*leftovers(os.environ), RUN_DIR}
    clean = {name: value for name, value in os.environ.items() if name not in traces}
    return {"OMP_NUM_THREADS": "1"} | clean | {PARENT: str(os.getpid()), MARK: folder}
