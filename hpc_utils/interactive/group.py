"""How engines become ranks of one torch.distributed group over gloo; these functions run on the engines."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from hpc_utils.doctor.network import interface_of
from hpc_utils.provenance.cpu import usable

from . import network

if TYPE_CHECKING:
    from torch.distributed import TCPStore

_store: TCPStore | None = None  # of the rank that serves it


def place() -> tuple[str, int, str]:
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
    limit = timedelta(seconds=timeout)
    store = dist.TCPStore(address, port, is_master=False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
    dist.barrier()
