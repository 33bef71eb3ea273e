"""The addresses at which other machines reach this one (IPv4)."""

from __future__ import annotations

import socket

from hpc_utils.launch import slurm_commands


def address_towards(host: str) -> str:
    """This machine's address on its way to `host`, a name or an address; nothing is sent.

    Raises:
        OSError: `host` is unknown, or has no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return probe.getsockname()[0]


def address_that_nodes_reach() -> str:
    """This machine's address on its way to the nodes of its Slurm cluster.

    Raises:
        SlurmError: there is no Slurm, it has no nodes, or there is no route to them.
    """
    nodes = slurm_commands.ask(["sinfo", "--noheader", "--Node", "--format=%o"]).split()
    if not nodes:
        raise slurm_commands.SlurmError("Slurm has no nodes here (`sinfo`)")
    try:
        return address_towards(nodes[0])
    except OSError as error:
        raise slurm_commands.SlurmError(f"no route to node {nodes[0]} ({error}): start on a login node") from None
