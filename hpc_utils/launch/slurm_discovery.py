"""What Slurm says of the cluster that this process is on: partitions, nodes that are alike, the user's accounts."""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping
from dataclasses import dataclass

from . import slurm_commands


@dataclass(frozen=True)
class Partition:
    """A partition's limits.

    Attributes:
        max_time: as Slurm writes it, such as 2-00:00:00 or UNLIMITED. max_nodes: of one job; 0 without a limit.
        exclusive: jobs always get whole nodes. memory: what a job gets that asks for none, such as DefMemPerCPU=4000.
    """

    name: str
    default: bool = False
    max_time: str = "UNLIMITED"
    max_nodes: int = 0
    exclusive: bool = False
    memory: str = ""


@dataclass(frozen=True)
class Nodes:
    """Nodes of a partition that are alike.

    Attributes:
        partition: its name. count: how many. example: one of them.
        cores: physical ones that jobs may use. threads: that Slurm counts of each.
        gpus, gres: GPUs of a node and the type that jobs may name; 0 and "" without.
        features: what the site calls them, with commas between.
    """

    partition: str
    count: int
    example: str
    cores: int
    threads: int
    gpus: int = 0
    gres: str = ""
    features: str = ""


@dataclass(frozen=True)
class Survey:
    """All of it. `accounts`: the user's own; empty where the site has none."""

    cluster: str
    partitions: Mapping[str, Partition]
    nodes: list[Nodes]
    accounts: list[str]


def survey() -> Survey:
    """Ask sinfo, scontrol and sacctmgr.

    Raises:
        SlurmError: there is no Slurm here, or it does not answer.
    """
    config = slurm_commands.ask(["scontrol", "show", "config"])
    name = re.search(r"^ClusterName\s*=\s*(\S+)", config, re.M)
    partitions = read_partitions(slurm_commands.ask(["scontrol", "show", "partition", "--oneliner"]))
    # --exact: one line for each kind of node, and none that says "at least".
    groups = slurm_commands.ask(["sinfo", "--noheader", "--exact", "--format=%R|%D|%N|%c|%Z|%G"])
    return Survey(
        name[1] if name else "cluster",
        partitions,
        [nodes for line in groups.splitlines() for nodes in _asked(line) if nodes.partition in partitions],
        _accounts(),
    )


def read_partitions(output: str) -> dict[str, Partition]:
    """The partitions that are up, of `scontrol show partition --oneliner`."""
    tables = [_pairs(line) for line in output.splitlines() if line.startswith("PartitionName=")]
    return {
        table["PartitionName"]: Partition(
            table["PartitionName"],
            default=table.get("Default") == "YES",
            max_time=table.get("MaxTime", "UNLIMITED"),
            max_nodes=int(table["MaxNodes"]) if table.get("MaxNodes", "").isdigit() else 0,
            exclusive=table.get("OverSubscribe") == "EXCLUSIVE",
            memory=" ".join(f"{key}={value}" for key, value in table.items() if key.startswith("DefMemPer")),
        )
        for table in tables
        if table.get("State") == "UP"
    }


def read_nodes(group: str, example: str) -> list[Nodes]:
    """One of sinfo's lines, completed by `scontrol show node --oneliner` of one of its nodes; two entries where a node
    has two types of GPU."""
    partition, count, _, cpus, threads, gres = group.split("|", 5)
    node = _pairs(example)
    cores = int(node.get("CPUEfctv", cpus)) // int(threads)  # the system may keep some; not printed before 22.05
    features = node.get("AvailableFeatures", "").replace("(null)", "")
    return [
        Nodes(partition, int(count), node["NodeName"], cores, int(threads), gpus, kind, features)
        for kind, gpus in read_gres(gres) or [("", 0)]
    ]


def read_gres(gres: str) -> list[tuple[str, int]]:
    """(type, number) of a node's GPUs: `gpu:a100:4(S:0-1),shard:16` is [("a100", 4)]; the type may be ""."""
    found = re.findall(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)(?:\([^)]*\))?", gres)
    return [(kind, int(number)) for kind, number in found if int(number)]


def _asked(group: str) -> list[Nodes]:
    example = slurm_commands.ask(["scontrol", "show", "hostnames", group.split("|")[2]]).split()[0]
    return read_nodes(group, slurm_commands.ask(["scontrol", "show", "node", example, "--oneliner"]))


def _accounts() -> list[str]:
    user = getpass.getuser()
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={user}", "format=account"]
    try:
        return sorted(set(slurm_commands.ask(command).split()))
    except slurm_commands.SlurmError:
        return []  # a site without accounting


def _pairs(line: str) -> dict[str, str]:
    """`Name=value ...` as Slurm prints it; a value ends where the next name begins."""
    return dict(re.findall(r"(?:^|\s)([A-Za-z]\w*)=(.*?)(?=\s+[A-Za-z]\w*=|\s*$)", line))
