"""The doctor, started: `hpc_utils.probe` as ranks on this machine, or in a job on a cluster's nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpc_utils import paths
from hpc_utils.probe.bench import SECONDS
from hpc_utils.probe.surroundings import leftovers
from hpc_utils.records.folder import read_json

from . import allocation, cluster, diagnosis, slurm
from .lifeline import PARENT, end_tree
from .request import Layout
from .submission import Submission

LATE = 60.0  # s over its time after which an examination is ended that did not end itself
POLL = 0.05  # s between looks at whether it is over
MARK = "HPC_DOCTOR"  # tells the examination's processes from all others


class NoReport(RuntimeError):
    """The examination itself ended without a report."""

    exit_code = 1


def here(nproc: int) -> dict[str, Any]:
    """Examine this machine with `nproc` ranks; they print the table. Returns doctor.json's content.

    Raises:
        NoReport: the ranks ended without one; what they printed says why.
        KeyboardInterrupt: Ctrl-C; every process is gone.
    """
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
    clean = {name: value for name, value in os.environ.items() if name not in leftovers(os.environ)}
    return {"OMP_NUM_THREADS": "1"} | clean | {PARENT: str(os.getpid()), MARK: folder}


def _build() -> str:
    """The torch build that the cluster file names, if HPC_CLUSTER (`<cluster>-<node type>`) says that this is one."""
    here = os.environ.get("HPC_CLUSTER", "")
    names = [name for name in cluster.known() if here == name or here.startswith(f"{name}-")]
    return cluster.read(max(names, key=len)).software.torch if names else ""


def on_cluster(
    found: cluster.Cluster, node_type: str, nodes: int, tell: Callable[[str], None]
) -> tuple[str, dict[str, Any]]:
    """Examine `nodes` whole nodes of a cluster in a job, and wait: (what it printed, doctor.json's content).

    Args:
        tell: called with a line when the job is submitted, and when it is over.

    Raises:
        ClusterError, SlurmError: no such type of node, or Slurm refused the job.
        NoReport: it ended without an answer.
    """
    node = found.node(node_type)
    made = Submission.begin("doctor", f"doctor-{found.hardware_id(node.name)}", found.name, node.name)
    allocation.write_environment(made.path, found, node)
    layout = Layout(nodes, allocation.ranks_per_node(found, node))
    log = f"{allocation.literal(made.path)}/logs/%j.log"
    options = [*allocation.options(found, node, layout), f"--output={log}"]
    copy = made.path / "doctor.json"
    arguments = [f"--link-gbit={found.network.link_gbit}", f"--torch={found.software.torch}", f"--copy={copy}"]
    script = paths.jobs() / "doctor.sbatch"
    job = slurm.sbatch(options, script, arguments, environment=allocation.variables(made.path, layout))
    tell(f"job {job} on {nodes} nodes x {layout.ranks_per_node} ranks; waiting for it to start and end")
    try:
        state = slurm.wait(job)
    except KeyboardInterrupt:
        slurm.scancel([job])
        raise
    said = diagnosis.log_text(made.path / "logs" / f"{job}.log")
    report = read_json(copy)
    if not report:
        raise NoReport(f"job {job} ended {state} and without a report:\n{said}")
    return said, report
