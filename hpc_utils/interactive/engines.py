"""A set of ipyparallel engines as its notebook sees it."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from IPython import get_ipython

from hpc_utils import paths, workspace
from hpc_utils.launch.process_tree import end_tree
from hpc_utils.launch.slurm_commands import OF_A_JOB
from hpc_utils.provenance import core_groups
from hpc_utils.workspace import Launch

from . import group, network

if TYPE_CHECKING:
    import pandas as pd
    from ipyparallel import Client, Cluster
    from ipyparallel.error import RemoteError

# Modules and variables of the cluster file, as in training jobs (jobs/launch.sh).
JOB = """#!/bin/bash
[ -n "$HPC_JOB_ENVIRONMENT" ] || HPC_JOB_ENVIRONMENT={environment}
[ ! -f "$HPC_JOB_ENVIRONMENT" ] || source "$HPC_JOB_ENVIRONMENT"
exec srun --cpu-bind=cores {program_and_args}
"""
# Waits for the end of the notebook's kernel, which holds its input; then ends the job, which has the folder's name, and the
# processes of this machine whose environment names the folder.
WATCHDOG = """
cat > /dev/null
for signal in TERM KILL; do
    scancel --name="${0##*/}"
    grep -lsaF "$0" /proc/[0-9]*/environ | cut -d/ -f3 | xargs -r kill -$signal
    sleep 3
done
rm -rf "$0"
"""


Place = Literal["local", "slurm"]


class EnginesError(RuntimeError):
    """Engines cannot be started or have ended; the message has the reason and advice."""


def start(n: int, where: Place = "local", sbatch_options: Sequence[str] = (), *, timeout: int = 60) -> Engines:
    """Start `n` engines and make `%%px` run cells on them.

    Args:
        where: "local", each engine on a core of its own if there are enough, or "slurm", each a task of one job.
        sbatch_options: for that job, such as `["--nodes=2", "--partition=debug"]`.
        timeout: s until all engines must have connected, waiting in Slurm's queue included.

    Raises:
        EnginesError: a wrong `n` or `where`, or they did not connect; nothing is left running.
        SlurmError: there is no Slurm here.
    """
    from ipyparallel import Cluster, error
    from traitlets.config import Config

    if n < 2 or where not in get_args(Place):
        raise EnginesError(f"engines={n}, where={where!r}: expected at least two engines, and 'local' or 'slurm'")
    if where == "slurm":
        address = network.address_that_nodes_reach()
        paths.results().mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".engines-", dir=paths.results()))  # nodes share it; mode 0700
    else:
        address = "127.0.0.1"
        folder = Path(tempfile.mkdtemp(prefix="hpc-engines-"))
    config = Config()
    config.BaseLauncher.environment = {**Launch(owner=str(folder)).variables, "OMP_NUM_THREADS": "1"}
    # sbatch inside a job (JupyterLab on Open OnDemand is one) would pass its variables on.
    unset = [f"--unset={name}" for name in workspace.environment() if OF_A_JOB.match(name)]
    options = [
        f"--ntasks={n}",
        "--time=30",
        f"--output={folder}/job.log",
        *sbatch_options,
        f"--job-name={folder.name}",
    ]
    job = config.SlurmEngineSetLauncher
    job.submit_command = ["sh", "-c", '"$@" 2> "$0"', f"{folder}/sbatch.log", "env", *unset, "sbatch", *options]
    job.batch_file_name = str(folder / "engines.sbatch")
    job.batch_template = JOB.replace("{environment}", shlex.quote(str(paths.jobs() / "environment.sh")))
    cluster = Cluster(
        engines=where,
        n=n,
        config=config,
        load_profile=False,
        profile_dir=str(folder),
        controller_ip=address,
        controller_location=address,
        controller_args=["--HeartMonitor.period=1000", "--IPController.use_threads=True"],
        log_level=logging.WARNING,
    )
    client = None
    watchdog = subprocess.Popen(
        ["sh", "-c", WATCHDOG, folder], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        cluster.start_cluster_sync()
        engines = [*cluster.engine_set.launchers.values()] if where == "local" else []
        client = cluster.connect_client_sync()
        connected = client.wait_for_engines(n, timeout=timeout, block=False, interactive=False)
        while not connected.done():
            if where == "local" and sum(engine.process.is_running() for engine in engines) < n:
                raise error.EngineError("an engine has ended")
            time.sleep(0.1)
        connected.result()
        if where == "local" and n <= len(cores := core_groups()):
            for rank in range(n):
                client[rank].apply_sync(os.sched_setaffinity, 0, cores[rank])
    except BaseException as fault:
        output = "\n".join(log.read_text() for log in folder.rglob("*.log"))
        _end(cluster, folder, client, watchdog)
        if isinstance(fault, subprocess.CalledProcessError | TimeoutError | error.EngineError):
            advice = "wait longer (timeout=), or request free nodes (sbatch_options=)"
            raise EnginesError(f"the engines did not connect: {fault}: {advice}\n{output}".strip()) from None
        raise
    return Engines(client, address, cluster, folder, watchdog)


def _end(cluster: Cluster, folder: Path, client: Client | None, watchdog: subprocess.Popen) -> None:
    if client is not None:
        client.close()
    cluster.log.setLevel(
        logging.CRITICAL
    )  # engines that are stopped end with exit code 1, and would print their logs
    with contextlib.suppress(subprocess.CalledProcessError):  # the job is over
        cluster.stop_cluster_sync()
    cluster.shutdown_atexit = False
    watchdog.stdin.close()
    end_tree(watchdog, str(folder))
    shutil.rmtree(folder, ignore_errors=True)


class Engines:
    """A set of engines; rank r is engine r. `view` (a blocking DirectView) and `client` are ipyparallel's own."""

    def __init__(
        self, client: Client, address: str, cluster: Cluster, folder: Path, watchdog: subprocess.Popen
    ) -> None:
        self.client = client
        self.view = client[:]
        self.view.block = True
        if get_ipython():
            self.view.activate()
        self._address = address
        self._ranks = range(len(client.ids))
        self._close = weakref.finalize(
            self, _end, cluster, folder, client, watchdog
        )  # at the latest when Python ends

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engines, their job and their controller; a second call does nothing."""
        self._close()

    @property
    def table(self) -> pd.DataFrame:
        """Where each engine runs: host, process, and the logical CPUs that it may use."""
        import pandas as pd

        rows = self.view.apply(group.place)
        return pd.DataFrame(rows, columns=["host", "process", "logical CPUs"]).rename_axis("rank")

    def join(self, timeout: float = 10) -> None:
        """Make the engines ranks of a new process group over gloo; a former group is destroyed.

        `timeout`: s for all ranks to arrive, and later for each collective.

        Raises:
            EnginesError: an engine has ended. CompositeError: the ranks did not find each other.
        """
        if ended := set(self._ranks) - set(self.client.ids):
            raise EnginesError(f"engines {sorted(ended)} have ended: close the set, and `start` another")
        self.view.execute("import torch.distributed")  # from a cluster's file system this takes its time
        meeting = self.client[0].apply_sync(group.open_meeting_point, self._address, timeout)
        ranks = len(self._ranks)
        self.view.map_sync(
            group.join, self._ranks, *([value] * ranks for value in (ranks, *meeting, self._address, timeout))
        )

    def outcomes(self) -> pd.DataFrame:
        """Each engine's outcome of the last `%%px --noblock` cell: its error, if any, and the seconds it took."""
        import pandas as pd

        result = get_ipython().magics_manager.registry["ParallelMagics"].last_result
        result.wait()
        rows = []
        for part in result.split():
            error = part.exception()
            started = part.metadata["started"]  # None of an engine that died
            completed = part.metadata["completed"]
            seconds = (completed - started).total_seconds() if started else None
            rows.append({"outcome": _message(error) if error else "completed", "seconds": seconds})
        return pd.DataFrame(rows).rename_axis("rank")


def _message(error: RemoteError) -> str:
    """Its name and message, without the place in C++ that gloo's errors begin with."""
    return f"{error.ename}: {str(error.evalue).rpartition('] ')[2]}"
