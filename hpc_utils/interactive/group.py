"""How engines become ranks of one torch.distributed group over gloo; these functions run on the engines."""

from __future__ import annotations

import os
import signal
import socket
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hpc_utils.doctor.network import interface_of
from hpc_utils.provenance.cpu import usable

from . import network

if TYPE_CHECKING:
    from torch.distributed import TCPStore

HANG_UP = signal.SIGUSR2

_links: set[tuple[Any, Any]] = set()  # gloo's connections to the other ranks: (own address, peer's)
_store: TCPStore | None = None  # of the rank that serves it


def whereabouts() -> tuple[str, int, str]:
    """This engine's host, process and logical CPUs."""
    return socket.gethostname(), os.getpid(), ", ".join(map(str, usable()))


def open_meeting_point(controller: str, timeout: float) -> tuple[str, int]:
    """On one engine: serve the store in which the ranks find each other; its address and port."""
    global _store
    import torch.distributed as dist

    address = network.address_towards(controller)
    _store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout))
    return address, _store.port


def join(rank: int, ranks: int, address: str, port: int, controller: str, timeout: float) -> None:
    """Leave the present group, if any, and join the one whose store is at `address`:`port`.

    Args:
        controller: reached over the interface that gloo is to use.
        timeout: s for all ranks to arrive, and later for each collective.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    # By default gloo resolves the host's name, which is often wrong on laptops and login nodes.
    os.environ["GLOO_SOCKET_IFNAME"] = interface_of(network.address_towards(controller))
    store = dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=timeout))
    before = _connections().keys()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout))
    dist.barrier()
    _links.clear()
    _links.update(_connections().keys() - before)


def _connections() -> dict[tuple[Any, Any], int]:
    """This process's established TCP connections: (own address, peer's) and the file descriptor."""
    import psutil

    found = psutil.Process().net_connections(kind="tcp")
    return {(one.laddr, one.raddr): one.fd for one in found if one.raddr}


def hang_up() -> None:
    """Close gloo's connections: every collective that waits, here or on the other ranks, raises at once.

    destroy_process_group does not: DistributedDataParallel keeps the group, and with it the connections, alive.
    """
    for ends, descriptor in _connections().items():
        if ends in _links:
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                connection.shutdown(socket.SHUT_RDWR)


def hang_up_on_signal() -> None:
    """Call `hang_up` on the signal HANG_UP, also while the main thread waits in a collective and runs no Python.

    Call it before any thread starts: they inherit the main thread's mask, and only ours takes the signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {HANG_UP})

    def listen() -> None:
        while True:
            signal.sigwait({HANG_UP})
            hang_up()

    threading.Thread(target=listen, name="hang-up", daemon=True).start()
