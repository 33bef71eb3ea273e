"""One process of a set: `python -m hpc_utils.interactive.member controller|engine FOLDER ...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hpc_utils import workspace
from hpc_utils.launch.process_tree import die_with_parent

from . import group

SECONDS_A_BEAT = 1  # s between heartbeats; also how long the controller takes to notice a new engine
MISSED_BEATS = 30  # after which an engine without a controller ends


def controller(folder: str, address: str) -> None:
    """Route cells and answers between the notebook and the engines; listens on `address` only."""
    os.register_at_fork(after_in_child=die_with_parent)  # its heart monitor, which would live on
    from ipyparallel.controller.app import IPController

    IPController.launch_instance(
        [
            *_common(folder),
            f"--ip={address}",
            f"--location={address}",
            "--IPController.use_threads=True",  # one process instead of eight
            f"--HeartMonitor.period={1000 * SECONDS_A_BEAT}",
        ]
    )


def engine(folder: str, rank: str | None = None, cores: str = "") -> None:
    """Run the cells of rank `rank` (in a Slurm job: of this task), on the logical CPUs `cores`, such as `0,1`."""
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    group.hang_up_on_signal()
    from ipyparallel.engine.app import IPEngine

    IPEngine.launch_instance(
        [
            *_common(folder),
            f"--IPEngine.id={os.environ['SLURM_PROCID'] if rank is None else rank}",
            f"--IPEngine.url_file={connection_file(Path(folder), 'engine')}",
            f"--IPEngine.max_heartbeat_misses={MISSED_BEATS}",
            "--IPEngine.timeout=30",
        ]
    )


def connection_file(folder: Path, side: str) -> Path:
    """The file with the controller's address for a `client` or an `engine`, and the key that signs messages."""
    return folder / "security" / f"ipcontroller-{side}.json"


def _common(folder: str) -> list[str]:
    return [f"--profile-dir={folder}", "--log-level=WARN"]


if __name__ == "__main__":
    if parent := workspace.launch().parent:  # started by the host on this machine, not by Slurm
        die_with_parent(parent)
    {"controller": controller, "engine": engine}[sys.argv[1]](*sys.argv[2:])
