"""What a cluster consists of: decided once by `up`, read by everything that belongs to it."""

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

from hpc_utils import capability

from . import cores, network

CONTROLLER, SLURMD, ACCOUNTING = 6817, 6818, 6819  # Slurm's own ports, where a cluster has its own network


@dataclass(frozen=True)
class Node:
    """One node: its name, where its slurmd listens, and the machine's logical CPUs that are its own."""

    name: str
    address: str
    port: int
    processors: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Folder, nodes, ports and addresses of one cluster.

    Attributes:
        cpus, gpus: what each node claims to Slurm, not what it has.
        share: of a core, that a node's device is; None: whole cores.
        subnet: number of its network; None in flat mode, where everything listens on 127.0.0.1.
        head: host name and address of slurmctld and slurmdbd.
        node_cores: how much of a core each node may use where nodes share cores; None: whole ones of its own.
    """

    name: str
    folder: Path
    nodes: tuple[Node, ...]
    cpus: int
    gpus: int
    share: float | None
    subnet: int | None
    head: tuple[str, str]
    controller_port: int
    accounting_port: int
    node_cores: float | None

    @property
    def flat(self) -> bool:
        return self.subnet is None

    @property
    def oversubscribed(self) -> bool:
        """Whether its nodes want more of the cores than there is."""
        return self.node_cores is not None and self.node_cores < (self.share or 1)

    @property
    def conf(self) -> Path:
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
        """Where its standard output and error go; Slurm's daemons write the same with times to PROGRAM.log beside."""
        return self.folder / "log" / f"{program}.out"

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def save(self) -> None:
        (self.folder / "plan.json").write_text(json.dumps(asdict(self) | {"folder": str(self.folder)}, indent=2))

    @classmethod
    def load(cls, folder: Path) -> Plan:
        kept = json.loads((folder / "plan.json").read_text())
        nodes = tuple(Node(**node | {"processors": tuple(node["processors"])}) for node in kept["nodes"])
        return cls(**kept | {"folder": folder, "nodes": nodes, "head": tuple(kept["head"])})


def draw(folder: Path, *, nodes: int, cpus: int, gpus: int, share: float | None, subnet: int | None) -> Plan:
    """The plan of a cluster with its own network `subnet`, or of a flat one on free ports."""
    found = cores.physical()
    processors = [tuple(share) for share in cores.shares(nodes, found)]
    each = capability.largest_share(nodes, len(found))
    names = [f"node{number}" for number in range(1, nodes + 1)]
    if subnet is None:
        head = (socket.gethostname().partition(".")[0], "127.0.0.1")
        controller, accounting, *ports = _free_ports(2 + nodes)
        addresses = ["127.0.0.1"] * nodes
    else:
        head = ("head", network.address(subnet, network.HEAD))
        controller, accounting, ports = CONTROLLER, ACCOUNTING, [SLURMD] * nodes
        addresses = [network.address(subnet, network.FIRST_NODE + number) for number in range(nodes)]
    return Plan(
        name=folder.name,
        folder=folder,
        nodes=tuple(Node(*one) for one in zip(names, addresses, ports, processors, strict=True)),
        cpus=cpus,
        gpus=gpus,
        share=share,
        subnet=subnet,
        head=head,
        controller_port=controller,
        accounting_port=accounting,
        node_cores=min(each, share or each) if nodes > len(found) or share else None,
    )


def _free_ports(count: int) -> list[int]:
    """TCP ports that nobody uses now on any address, below those the kernel hands out for outgoing connections.

    From the system's randomness: training seeds Python's, and two clusters of one seed would meet.
    """
    free = filter(is_free, random.SystemRandom().sample(range(10_000, 32_000), 2_000))
    ports = list(itertools.islice(free, count))
    if len(ports) < count:
        raise OSError("no free TCP ports between 10000 and 32000")
    return ports


def is_free(port: int) -> bool:
    """Whether it can be listened on, on every address of this host."""
    for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family)
        except OSError:  # a kernel without IPv6
            continue
        with probe:
            try:
                probe.bind((everywhere, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
    return True
