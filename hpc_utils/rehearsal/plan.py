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

from hpc_utils import capability

from . import network

TOPOLOGY = Path("/sys/devices/system/cpu")
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
        node_cores: the part of a core that each node may use where nodes share cores; None: whole cores of its own.
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
        """Whether its nodes need more cores than this machine has."""
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
        """The file of its standard output and error; Slurm's daemons also write PROGRAM.log next to it."""
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
    found = physical_cores()
    processors = [tuple(share) for share in shares(nodes, found)]
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
    """TCP ports that are free now on every address, below those the kernel uses for outgoing connections.

    Drawn from the system's randomness: with Python's, which training seeds, two clusters could draw the same.
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


def physical_cores() -> list[tuple[int, ...]]:
    """The logical CPUs this process may use, grouped by physical core."""
    allowed = os.sched_getaffinity(0)
    return sorted({tuple(sorted(allowed & _siblings(cpu))) for cpu in allowed})


def shares(nodes: int, cores: list[tuple[int, ...]]) -> list[list[int]]:
    """The logical CPUs of each node: equally many whole cores, disjoint; round-robin where nodes outnumber cores."""
    each = len(cores) // nodes
    if not each:
        return [list(cores[node % len(cores)]) for node in range(nodes)]
    return [sorted(cpu for core in cores[node * each : (node + 1) * each] for cpu in core) for node in range(nodes)]


def _siblings(cpu: int) -> set[int]:
    try:
        text = (TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return {cpu}
    ends = (part.partition("-") for part in text.strip().split(","))
    return {one for first, _, last in ends for one in range(int(first), int(last or first) + 1)}
