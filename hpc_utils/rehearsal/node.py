"""The first process of a node: sets the node up, starts its slurmd, adopts and reaps what jobs leave.

    python -m hpc_utils.rehearsal.node FOLDER NAME

It reports on its standard output that its namespaces exist, and reads on its standard input when its cable is connected.
When its standard input closes, the keeper has ended, and the node ends at once, with everything on it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from hpc_utils.launch.process_tree import adopt_orphans

from . import daemons, network, processes
from .plan import Node, Plan


def main(folder: Path, name: str) -> None:
    plan = Plan.load(folder)
    node = plan.nodes[name]
    if plan.flat:
        adopt_orphans()
    else:
        _move_in(plan, node)
    threading.Thread(target=_end_with_keeper, daemon=True).start()
    os.sched_setaffinity(0, node.processors)
    command = ["slurmd", "-D", "-N", name]
    slurmd = subprocess.Popen(
        command, env=daemons.environment(plan), stdin=subprocess.DEVNULL, start_new_session=True
    )
    while os.wait()[0] != slurmd.pid:
        pass
    processes.kill_descendants(os.getpid())


def _move_in(plan: Plan, node: Node) -> None:
    """Inside new namespaces: own host name, host table, shared memory and address."""
    socket.sethostname(node.name)
    _mount("--bind", str(plan.folder / "etc" / "hosts"), "/etc/hosts")
    _mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    print("born", flush=True)
    sys.stdin.readline()
    network.configure(node.address)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _end_with_keeper() -> None:
    with suppress(OSError):
        while os.read(0, 1024):
            pass
    processes.kill_descendants(os.getpid())
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
