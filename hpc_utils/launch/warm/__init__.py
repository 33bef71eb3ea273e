"""Warm start: ranks are forked from one process that has imported everything, instead of importing it themselves.

    hpc, or torchrun's wrapper on a node ──starts──▶ server: imports, then listens
            └──▶ client (torchrun) ──asks──▶ server ──forks──▶ torchrun
                                                                 └──▶ client (rank 0), client (rank 1) ──ask──▶ server ──▶ ranks

`client.py` takes the arguments of `python -m` and represents the forked process: signals and exit codes pass through it. Where
a fork is not safe, the server refuses, and the client becomes `python -m ...` itself: a cold start. The launch record's `warm`
names the server, or is `off`. A name that is a path serves all nodes of a rehearsal, which are one machine: a fork moves to
the node of its client.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hpc_utils import workspace
from hpc_utils.workspace import Launch

OFF = "off"


def python(*arguments: str) -> list[str]:
    """The command that runs `-m MODULE ...` warm if the launch record names a server, else cold."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("client.py")), *arguments]


def start(folder: str = "") -> tuple[str, subprocess.Popen | None]:
    """Start a server, unless this process's launch record names one already: (its name or `off`, its process).

    Clients may connect at once: they are answered after the imports. The server ends with this process. With a
    `folder`, its name is a path in it, at which clients on other nodes of this machine reach it.
    """
    record = workspace.launch()
    if record.warm or sys.platform != "linux":
        return record.warm or OFF, None
    name = os.path.join(folder, "warm") if folder else f"hpc-warm-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(name if folder else f"\0{name}")  # abstract: it ends with the last process that has it
        listener.listen(1024)
        process = subprocess.Popen(
            [sys.executable, "-m", "hpc_utils.launch.warm.server", str(listener.fileno())],
            env=workspace.child_environment() | workspace.starting(Launch(owner=record.owner)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # an import that fails is reported by the cold start that follows
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return name, process


@contextlib.contextmanager
def started(*, cold: bool = False, across_nodes: bool = False) -> Iterator[str]:
    """`start`, unless `cold`; at the end of the block the server ends, with all that was forked from it."""
    with tempfile.TemporaryDirectory(prefix="hpc-") if across_nodes else contextlib.nullcontext("") as folder:
        name, process = (OFF, None) if cold else start(folder)
        try:
            yield name
        finally:
            if process:
                process.kill()
                process.wait()
