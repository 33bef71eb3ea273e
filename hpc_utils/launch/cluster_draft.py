"""The first draft of a cluster file (`cluster_draft.toml.j2`), from what Slurm reports; every guess names its source."""

from __future__ import annotations

import getpass
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hpc_utils import paths
from hpc_utils.provenance.machine import infiniband, network
from hpc_utils.records import atomic
from hpc_utils.workspace import environment

from . import cluster, slurm_commands

HOUR = 3600
# What GPUs compute usefully, by the vendors' architecture papers: tf32 and bf16 from Ampere on, bf16 on every MI.
PRECISIONS = {
    "p100 v100 t4": ["fp32", "fp16"],
    "a10 a30 a40 a100 l4 l40 l40s h100 h200 gh200 b200": ["fp32", "tf32", "fp16", "bf16"],
    "mi100 mi210 mi250 mi250x mi300a mi300x": ["fp32", "fp16", "bf16"],
}


@dataclass(frozen=True)
class Partition:
    """A partition's limits.

    Attributes:
        max_time: as Slurm writes it, such as 2-00:00:00 or UNLIMITED. max_nodes: of one job; 0 without a limit.
        exclusive: jobs always get whole nodes. memory: the default of a job, such as DefMemPerCPU=4000.
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
        features: the site's names for them, with commas between.
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
class SlurmFacts:
    """What Slurm reports of the cluster. `accounts`: the user's own; empty where the site has none."""

    cluster: str
    partitions: Mapping[str, Partition]
    nodes: list[Nodes]
    accounts: list[str]


def init(name: str = "") -> Path:
    """Write jobs/clusters/<name>.toml, by default under the cluster's own name, and return its path.

    Raises:
        ClusterError: there is such a file already, or the name is not valid. SlurmError: there is no Slurm here.
    """
    found = discover()
    name = name or _label(found.cluster)
    if not re.fullmatch(cluster.NAME, name):
        raise cluster.ClusterError(f"{name!r}: a cluster's name is {cluster.NAME_ALLOWED}")
    path = paths.clusters() / f"{name}.toml"
    if path.exists():
        raise cluster.ClusterError(f"{path} exists already: give another name, or remove it")
    atomic.write_text(path, draft(found, environment()))
    cluster.read(name)
    return path


def draft(found: SlurmFacts, variables: Mapping[str, str]) -> str:
    """The file's text: GPUs first, of them the site's default partition first."""
    import jinja2

    order = {name: (not one.default, place) for place, (name, one) in enumerate(found.partitions.items())}
    nodes = sorted(found.nodes, key=lambda one: (not one.gpus, order[one.partition]))
    limit = found.partitions[nodes[0].partition].max_time if nodes else ""
    fast = sorted(one.name for one in network() or () if one.name.startswith(("ib", "hsn")))
    text = Path(__file__).with_suffix(".toml.j2").read_text()
    return jinja2.Template(text, keep_trailing_newline=True, undefined=jinja2.StrictUndefined).render(
        site=found,
        today=date.today(),
        time=limit if (slurm_commands.seconds(limit) or HOUR) < HOUR else "01:00:00",
        max_time=limit,
        hyper_threads=any(one.threads > 1 for one in nodes),
        types=_types(found, nodes),
        fast=fast,
        link_gbit=sum(float(port.rate.split()[0]) for port in infiniband() or () if port.rate),
        scratch=next(filter(variables.get, ("SCRATCH", "WORK", "PROJECT", "CINECA_SCRATCH", "FAST")), ""),
    )


def _types(found: SlurmFacts, nodes: list[Nodes]) -> list[dict]:
    """What the template needs of each type. Its name is its partition's, with the GPU or cores where that has several."""
    several, types = [one.partition for one in nodes], {}
    for one in nodes:
        gpu, known, source = _gpu(one) if one.gpus else (f"{one.cores}cores", ["fp32", "bf16"], "")
        name = _label(f"{one.partition}-{gpu}" if several.count(one.partition) > 1 else one.partition)
        while name in types:
            name += "-2"
        types[name] = {
            "name": name,
            "nodes": one,
            "partition": found.partitions[one.partition],
            "gpu": gpu,
            "source": source,
            "precisions": known or ["fp32", "fp16"],
            "is_known": bool(known),
        }
    return list(types.values())


def _gpu(one: Nodes) -> tuple[str, list[str], str]:
    """(name, precisions, source) of a GPU by Slurm's name for it, such as nvidia_a100-sxm4-80gb, or by the nodes'
    features; no precisions if it is not a known one."""
    for text, source in ((one.gres, "sinfo %G"), (one.features, f"scontrol show node {one.example}: features")):
        words = set(re.split(r"[^a-z0-9]+", text.lower()))
        for names, precisions in PRECISIONS.items():
            if found := words & set(names.split()):
                return min(found), precisions, f"{source}: {text}"
    return _label(one.gres) if one.gres else "unknown", [], f"FILL IN: Slurm's name for it is {one.gres or 'empty'}"


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:28].strip("-") or "nodes"


def discover() -> SlurmFacts:
    """Query sinfo, scontrol and sacctmgr.

    Raises:
        SlurmError: there is no Slurm here, or it does not answer.
    """
    ask = slurm_commands.ask
    name = re.search(r"^ClusterName\s*=\s*(\S+)", ask(["scontrol", "show", "config"]), re.M)
    partitions = read_partitions(ask(["scontrol", "show", "partition", "--oneliner"]))
    nodes = []
    # --exact: one line for each kind of node, and none with "at least".
    for group in ask(["sinfo", "--noheader", "--exact", "--format=%R|%D|%N|%c|%Z|%G"]).splitlines():
        partition, _, names, *_ = group.split("|")
        if partition in partitions:
            example = ask(["scontrol", "show", "hostnames", names]).split()[0]
            nodes += read_nodes(group, ask(["scontrol", "show", "node", example, "--oneliner"]))
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={getpass.getuser()}"]
    try:
        accounts = sorted(set(ask([*command, "format=account"]).split()))
    except slurm_commands.SlurmError:
        accounts = []  # a site without accounting
    return SlurmFacts(name[1] if name else "cluster", partitions, nodes, accounts)


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


def _pairs(line: str) -> dict[str, str]:
    """`Name=value ...` as Slurm prints it; a value ends where the next name begins."""
    return dict(re.findall(r"(?:^|\s)([A-Za-z]\w*)=(.*?)(?=\s+[A-Za-z]\w*=|\s*$)", line))
