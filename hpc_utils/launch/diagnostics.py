"""Starts the doctor and the benches: as ranks on this machine, or in a job on a cluster's nodes.

In both cases rank 0 writes its record as one JSON file, which is the result.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from hpc_utils import paths, workspace
from hpc_utils.doctor.bench import GRACE, LIMIT
from hpc_utils.doctor.check import SECONDS
from hpc_utils.launcher import load_launcher
from hpc_utils.records.folder import read_json
from hpc_utils.workspace import Launch

from . import job_environment, slurm_commands
from .cluster import Cluster, ClusterError, known, read_cluster
from .failure import tail
from .process_tree import end_tree, start_bound
from .request import Layout
from .submit import Submission

POLL = 0.05  # s between looks whether it is over
LATE = 60.0  # s over its time after which an examination is ended that did not end itself
# The address is given: without it torchrun waits for ever where the host's name does not resolve, which the doctor
# reports.
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--log-dir=/dev/null"]


class NoReport(RuntimeError):
    """The ranks or the job ended without a record."""

    exit_code = 1


class Diagnostic(NamedTuple):
    """The module that the ranks run, the job script that starts them on a cluster, and their time limit.

    Attributes:
        seconds: after which the ranks here are ended. grace: seconds that they then have to tidy up.
    """

    module: str
    script: str
    seconds: float
    grace: float = 0.0


DOCTOR = Diagnostic("hpc_utils.doctor", "doctor.sbatch", SECONDS + LATE)
BENCH = Diagnostic("hpc_utils.doctor.bench", "bench.sbatch", LIMIT, GRACE)


def doctor_arguments(cluster: Cluster | None) -> list[str]:
    """The doctor's arguments for a cluster, or (None) for this machine."""
    if cluster:
        return [f"--link-gbit={cluster.network.link_gbit}", f"--torch={cluster.software.torch}"]
    environment = workspace.environment()
    inherited = sorted(filter(workspace.RANK_VARIABLES.fullmatch, environment.keys() - {workspace.VARIABLE}))
    return [f"--inherited={','.join(inherited)}", f"--torch={_build(environment.get('HPC_CLUSTER', ''))}"]


def on_this_machine(what: Diagnostic, nproc: int, arguments: Sequence[str], launcher: str) -> dict[str, Any]:
    """Run it on `nproc` ranks, which print their findings; returns the record of rank 0. `launcher`: of a loop,
    `module:Class`, or "".

    Raises:
        NoReport: the ranks ended without a record; the error includes their output.
        KeyboardInterrupt: Ctrl-C; every process has ended.
    """
    start = [sys.executable, *TORCHRUN, f"--nproc-per-node={nproc}"]
    if launcher:
        start = [*load_launcher(launcher).command(nproc), sys.executable]
    with tempfile.TemporaryDirectory(prefix="hpc-probe-") as folder:
        copy = Path(folder) / "record.json"
        process = start_bound(
            [*start, "-m", what.module, *arguments, f"--copy={copy}"],
            workspace.child_environment() | Launch(owner=folder).variables,
        )
        try:
            end = time.monotonic() + what.seconds
            while process.poll() is None and not copy.exists() and time.monotonic() < end:
                time.sleep(POLL)
        finally:
            if copy.exists() or not what.grace:  # at once: the launcher would wait for ranks that hang
                process.kill()
            end_tree(process, folder, what.grace)
        if not copy.exists():
            raise NoReport("the ranks ended without a report: their output has the reason")
        return json.loads(copy.read_text())


def on_cluster(
    what: Diagnostic,
    cluster: Cluster,
    node_type: str,
    layout: tuple[int, int],
    arguments: Sequence[str],
    tell: Callable[[str], None],
    measuring: AbstractContextManager[None],
    launcher: str,
) -> tuple[str, dict[str, Any]]:
    """Run it in a job, and wait; returns (output of the job, record of rank 0).

    Args:
        layout: nodes, and ranks on each; 0 of those stands for one per device.
        tell: called with a line when the job is submitted.
        measuring: entered when the job starts, not while it waits in the queue, and left when it is over; if it
            cannot be entered, the job is cancelled.
        launcher: of a loop, `module:Class`, or "".

    Raises:
        ClusterError, SlurmError: no such type of node, more ranks than it has devices, or Slurm refused the job.
        NoReport: it ended without a record.
    """
    node = cluster.node(node_type)
    most = job_environment.ranks_per_node(cluster, node)
    job_layout = Layout(layout[0], layout[1] or most)
    if job_layout.ranks_per_node > most:
        raise ClusterError(
            f"{job_layout.ranks_per_node} ranks on a node of type {node.name} of {cluster.name}: "
            f"it has {most} devices"
        )
    name = Path(what.script).stem
    submission = Submission.begin(name, f"{name}-{cluster.hardware_id(node.name)}", cluster.name, node.name)
    job_environment.write_environment(submission.path, cluster, node)
    options = [*job_environment.options(cluster, node, job_layout), job_environment.output(submission.path, "%j")]
    copy = submission.path / "record.json"
    variables = job_environment.variables(submission.path, job_layout)
    if launcher:
        variables["LAUNCHER"] = "srun"
    arguments = [*arguments, f"--copy={copy}"]
    job = slurm_commands.sbatch(options, paths.jobs() / what.script, arguments, variables)
    tell(f"job {job} on {job_layout.nodes} x {job_layout.ranks_per_node} ranks; waiting for it to start and end")
    try:
        slurm_commands.wait(job, until_it_runs=True)
        with measuring:
            state = slurm_commands.wait(job)
    except BaseException:  # Ctrl-C, or what it measures is in use
        slurm_commands.scancel([job])
        raise
    printed = tail(submission.log(job), 1000)
    if not (record := read_json(copy)):
        raise NoReport(f"job {job} ended {state} and without a report:\n{printed}")
    return printed, record


def _build(hardware: str) -> str:
    """The torch build that the cluster file names, if `hardware` (`<cluster>-<node type>`) is on a known cluster."""
    names = [name for name in known() if hardware == name or hardware.startswith(f"{name}-")]
    return read_cluster(max(names, key=len)).software.torch if names else ""
