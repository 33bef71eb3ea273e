"""The first draft of a cluster file (`templates/cluster.toml.j2`), from what Slurm reports; every guess names its
source."""

from __future__ import annotations

import getpass
import re
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from hpc_utils import paths
from hpc_utils.launch import cluster, job_environment, slurm_commands
from hpc_utils.provenance.machine import network
from hpc_utils.records import atomic

TEMPLATE = Path(__file__).parent / "templates/cluster.toml.j2"
HOUR = 3600
# What GPUs compute usefully, by the vendors' architecture papers: tf32 and bf16 from Ampere on, bf16 on every MI.
PRECISIONS = {
    "p100 v100 t4": ["fp32", "fp16"],
    "a10 a30 a40 a100 l4 l40 l40s h100 h200 gh200 b200": ["fp32", "tf32", "fp16", "bf16"],
    "mi100 mi210 mi250 mi250x mi300a mi300x": ["fp32", "fp16", "bf16"],
}
SLICE = re.compile(r"\d+g\.\d+gb")  # of a GPU, as MIG names it
SINFO = "%P|%l|%s|%h|%D|%N|%Z|%f|%G"  # a line for each kind of node of a partition


@dataclass(frozen=True)
class Nodes:
    """Nodes of a partition that are alike.

    Attributes:
        partition: its name. default: whether it is the site's default. max_time: of its jobs, as Slurm writes it.
        exclusive: jobs always get whole nodes. count: how many nodes one job may have. example: one of them.
        cores: physical ones that jobs may use. threads: that Slurm counts of each.
        gpus, gres: GPUs of a node and the type that jobs may name; 0 and "" without.
        features: the site's names for them, with commas between.
    """

    partition: str
    default: bool
    max_time: str
    exclusive: bool
    count: int
    example: str
    cores: int
    threads: int
    gpus: int = 0
    gres: str = ""
    features: str = ""

    @property
    def mig_slice(self) -> str:
        """The part of a GPU that each of `gpus` is; "" of whole ones."""
        return next(iter(SLICE.findall(f"{self.gres},{self.features}")), "")


def init(name: str = "") -> Path:
    """Write jobs/clusters/<name>.toml, by default under the cluster's own name, and return its path.

    Raises:
        ClusterError: there is such a file already, or the name is not valid. SlurmError: there is no Slurm here.
    """
    ask = slurm_commands.ask
    path = name and _free(name)  # before Slurm is asked
    try:
        settings = ask(["scontrol", "show", "config"])
    except slurm_commands.SlurmError as error:
        templates = ", ".join(sorted(file.stem for file in paths.clusters().glob("*.toml")))
        remedy = (
            f"copy one of {templates} in {paths.clusters()} instead, and edit it; a rehearsal cluster is one already"
        )
        raise slurm_commands.SlurmError(f"{error}; {remedy}") from None
    cluster_name = re.search(r"^ClusterName\s*=\s*(\S+)", settings, re.M)[1]
    path = path or _free(_label(cluster_name))
    nodes = []
    for line in ask(["sinfo", "--noheader", "--exact", f"--format={SINFO}"]).splitlines():
        if not (names := line.split("|")[5]):  # a partition without nodes
            continue
        example = ask(["scontrol", "show", "hostnames", names]).split()[0]
        nodes += read_nodes(line, ask(["scontrol", "show", "node", example, "--oneliner"]))
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={getpass.getuser()}"]
    try:
        accounts = sorted(set(ask([*command, "format=account"]).split()))
    except slurm_commands.SlurmError:
        accounts = []  # a site without accounting
    atomic.write_text(path, draft(name or cluster_name, nodes, accounts))
    cluster.read_cluster(path.stem)
    return path


def _free(name: str) -> Path:
    """The path of a new cluster file of that name."""
    if not re.fullmatch(cluster.NAME, name):
        raise cluster.ClusterError(f"{name!r}: a cluster's name is {cluster.NAME_ALLOWED}")
    path = paths.clusters() / f"{name}.toml"
    if path.exists():
        raise cluster.ClusterError(f"{path} exists already: give another name, or remove it")
    return path


def read_nodes(line: str, node: str) -> list[Nodes]:
    """One of sinfo's lines (SINFO), completed by `scontrol show node --oneliner` of one of its nodes; an entry for
    each type of GPU."""
    partition, max_time, job_size, shared, count, _, threads, features, gres = line.split("|")
    # The system may keep some of the cores; before Slurm 22.05 only the total is printed.
    cpus = re.search(r"CPUEfctv=(\d+)", node) or re.search(r"CPUTot=(\d+)", node)
    most = job_size.rpartition("-")[2]
    return [
        Nodes(
            partition=partition.removesuffix("*"),
            default=partition.endswith("*"),
            max_time=max_time,
            exclusive=shared.startswith("EXCL"),
            count=min(int(count), int(most)) if most.isdigit() else int(count),
            example=re.search(r"NodeName=(\S+)", node)[1],
            cores=int(cpus[1]) // int(threads),
            threads=int(threads),
            gpus=gpus,
            gres=kind,
            features=features.replace("(null)", ""),
        )
        for kind, gpus in read_gres(gres) or [("", 0)]
    ]


def read_gres(gres: str) -> list[tuple[str, int]]:
    """(type, number) of a node's GPUs: `gpu:a100:4(S:0-1),shard:16` is [("a100", 4)]; the type may be ""."""
    matches = re.findall(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)(?:\([^)]*\))?", gres)
    return [(kind, int(number)) for kind, number in matches if int(number)]


def draft(name: str, nodes: list[Nodes], accounts: list[str]) -> str:
    """The file's text, `name` its title: GPUs first, of them the site's default partition first. `accounts`: the user's own."""
    nodes = sorted(nodes, key=lambda group: (not group.gpus, not group.default))
    limit = nodes[0].max_time
    return job_environment.render_template(
        TEMPLATE,
        name=name,
        accounts=accounts,
        today=date.today(),
        time=limit if (slurm_commands.seconds(limit) or HOUR) < HOUR else "01:00:00",
        max_time=limit,
        hyper_threads=any(group.threads > 1 for group in nodes),
        types=_types(nodes),
        fast=sorted(interface.name for interface in network() or () if interface.name.startswith(("ib", "hsn"))),
    )


def _types(nodes: list[Nodes]) -> dict[str, dict]:
    """What the template needs of each type. Its name is its partition's, with the GPU or cores where that has
    several."""
    several = Counter(group.partition for group in nodes)
    types = {}
    for group in nodes:
        gpu, precisions, source = _gpu(group) if group.gpus else (f"{group.cores}cores", ["fp32", "bf16"], "")
        name = _label(f"{group.partition}-{gpu}" if several[group.partition] > 1 else group.partition)
        while name in types:
            name += "-2"
        types[name] = {"nodes": group, "gpu": gpu, "source": source, "precisions": precisions}
    return types


def _gpu(group: Nodes) -> tuple[str, list[str], str]:
    """(name, precisions, source) of a GPU by Slurm's name for it, such as nvidia_a100-sxm4-80gb, or by the nodes'
    features; no precisions if it is not a known one."""
    for text, source in ((group.gres, "sinfo %G"), (group.features, "sinfo %f")):
        words = set(re.split(r"[^a-z0-9]+", text.lower()))
        for names, precisions in PRECISIONS.items():
            if models := words & set(names.split()):
                remark = "; FILL IN: a slice has no known peak, and NCCL does not connect slices of one GPU" * bool(
                    group.mig_slice
                )
                return _label(f"{min(models)} {group.mig_slice}"), precisions, f"{source}: {text}{remark}"
    return _label(group.gres or "unknown"), [], f"FILL IN: Slurm's name for it is {group.gres or 'empty'}"


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:28].strip("-")
