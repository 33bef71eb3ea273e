"""Warm start: ranks are forked from a process that has imported everything once, instead of importing it each.

    hpc, or torchrun's wrapper on a node ──starts──▶ server: imports, then listens
            └──▶ client (torchrun) ──asks──▶ server ──forks──▶ torchrun
                                                                 └──▶ client (rank 0), client (rank 1) ──ask──▶ server ──▶ ranks

`client.py` takes the arguments of `python -m` and stands in for that process; what starts a rank need not know that it is a
fork. Where a fork is not safe, the server refuses, and the client becomes `python -m ...` itself: a cold start.
`$HPC_WARM` names the server, or says `off`. A name that is a path serves all nodes of a rehearsal, which are one machine: it
imports once for all of them, and its forks move to the node of the client that asked.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..lifeline import PARENT

SERVER = "HPC_WARM"
OFF = "off"


def python(*arguments: str) -> list[str]:
    """The command that runs `-m MODULE ...` warm, if `$HPC_WARM` names a server, else cold."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("client.py")), *arguments]


def start(environment: Mapping[str, str], folder: str = "") -> tuple[str, subprocess.Popen | None]:
    """(the value of `$HPC_WARM` for what asks it, the process): start a server with `environment`, or name the one that it
    names. Clients may ask at once: they are answered when the imports are done. The server ends with this process.

    With a `folder` its name is a path in there, by which clients on other nodes of this machine reach it.
    """
    if environment.get(SERVER) or sys.platform != "linux":
        return environment.get(SERVER, OFF), None
    name = os.path.join(folder, "warm") if folder else f"hpc-warm-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(name if folder else f"\0{name}")  # abstract: it is gone with the last process that has it
        listener.listen(1024)
        process = subprocess.Popen(
            [sys.executable, "-m", "hpc_utils.launch.warm.server", str(listener.fileno())],
            env={**environment, PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # what cannot be imported fails again, and is seen, in the cold start that follows
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return name, process


@contextlib.contextmanager
def started(environment: Mapping[str, str], *, cold: bool = False, across_nodes: bool = False) -> Iterator[str]:
    """`start`, unless `cold`; at the end of the block the server ends, with all that was forked from it."""
    with tempfile.TemporaryDirectory(prefix="hpc-") if across_nodes else contextlib.nullcontext("") as folder:
        name, process = (OFF, None) if cold else start(environment, folder)
        try:
            yield name
        finally:
            if process:
                process.kill()
                process.wait()
