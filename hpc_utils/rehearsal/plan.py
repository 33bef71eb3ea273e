"""The parts of a cluster: chosen once by `up`, read by each of its processes."""

from __future__ import annotations

import errno
import itertools
import json
import os
import pwd
import random
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from hpc_utils import capability

from . import network

CONTROLLER, SLURMD, ACCOUNTING = 6817, 6818, 6819  # Slurm's own ports, where a cluster has its own network


@dataclass(frozen=True)
class Node:
    """One node: its name, where its slurmd listens, and the machine's logical CPUs that are its own."""

    name: str
    address: str
    port: int
    processors: list[int]


@dataclass(frozen=True)
class Plan:
    """Folder, nodes, ports and addresses of one cluster.

    Attributes:
        nodes: by name. cpus, gpus: what each node claims to Slurm, not what it has.
        share: of a core, that a node's device is; None: whole cores.
        subnet: number of its network; None in flat mode, where everything listens on 127.0.0.1.
        head_name, head: host name and address of slurmctld and slurmdbd.
        node_cores: the part of a core that each node may use where nodes share cores; None: whole cores of its own.
    """

    folder: Path
    nodes: dict[str, Node]
    cpus: int
    gpus: int
    share: float | None
    subnet: int | None
    head_name: str
    head: str
    controller_port: int
    accounting_port: int
    node_cores: float | None

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def command(self) -> str:
        """The command that starts such a cluster."""
        share = f" --cores-per-node={self.share:g}" if self.share else ""
        return f"hpc cluster up --nodes={len(self.nodes)} --cpus={self.cpus} --gpus={self.gpus}{share}"

    @property
    def flat(self) -> bool:
        return self.subnet is None

    @property
    def oversubscribed(self) -> bool:
        """Whether its nodes need more cores than this machine has, so that timings mean nothing."""
        return self.node_cores is not None and self.node_cores < (self.share or 1)

    @property
    def conf(self) -> Path:
        """The path of slurm.conf."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        return self.folder / "munge" / "socket"

    @property
    def database_socket(self) -> Path:
        return self.folder / "mariadb" / "socket"

    @property
    def user(self) -> str:
        return pwd.getpwuid(os.getuid()).pw_name

    def output(self, program: str) -> Path:
        """The file of its standard output and error; Slurm's daemons also write PROGRAM.log next to it."""
        return self.folder / "log" / f"{program}.out"

    def save(self) -> None:
        (self.folder / "plan.json").write_text(json.dumps(asdict(self), indent=2, default=str))

    @classmethod
    def load(cls, folder: Path) -> Self:
        stored: dict[str, Any] = json.loads((folder / "plan.json").read_text())
        nodes = {name: Node(**node) for name, node in stored["nodes"].items()}
        return cls(**stored | {"folder": folder, "nodes": nodes})


def draw(folder: Path, *, nodes: int, cpus: int, gpus: int, share: float | None, subnet: int | None) -> Plan:
    """The plan of a cluster with its own network `subnet`, or of a flat one on free ports."""
    from hpc_utils.provenance import core_groups

    cores = core_groups()
    cores_per_node = capability.largest_share(nodes, len(cores))
    names = [f"node{number}" for number in range(1, nodes + 1)]
    if subnet is None:
        head_name = socket.gethostname().partition(".")[0]
        head = "127.0.0.1"
        addresses = ["127.0.0.1"] * nodes
        controller, accounting, *ports = _free_ports(2 + nodes)
    else:
        head_name = "head"
        head = network.address(subnet, network.HEAD)
        controller = CONTROLLER
        accounting = ACCOUNTING
        ports = [SLURMD] * nodes
        addresses = [network.address(subnet, network.FIRST_NODE + number) for number in range(nodes)]
    return Plan(
        folder=folder,
        nodes={node[0]: Node(*node) for node in zip(names, addresses, ports, shares(nodes, cores), strict=True)},
        cpus=cpus,
        gpus=gpus,
        share=share,
        subnet=subnet,
        head_name=head_name,
        head=head,
        controller_port=controller,
        accounting_port=accounting,
        node_cores=min(cores_per_node, share or cores_per_node) if nodes > len(cores) or share else None,
    )


def shares(nodes: int, cores: list[list[int]]) -> list[list[int]]:
    """The logical CPUs of each node: equally many whole cores, disjoint; round-robin where nodes outnumber cores."""
    cores_per_node = len(cores) // nodes
    if not cores_per_node:
        return [cores[node % len(cores)] for node in range(nodes)]
    return [
        sorted(itertools.chain(*cores[node * cores_per_node : (node + 1) * cores_per_node])) for node in range(nodes)
    ]


def _free_ports(count: int) -> list[int]:
    """TCP ports that are free now on every address, below those the kernel uses for outgoing connections.

    Drawn from the system's randomness: with Python's, which training seeds, two clusters could draw the same.
    """
    free = filter(is_free, random.SystemRandom().sample(range(10_000, 32_000), 2_000))
    return list(itertools.islice(free, count))


def is_free(port: int) -> bool:
    """Whether it can be listened on, on every address of this host."""
    for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family) as probe:
                probe.bind((everywhere, port))
        except OSError as error:  # another one on a kernel without IPv6
            if error.errno == errno.EADDRINUSE:
                return False
    return True
