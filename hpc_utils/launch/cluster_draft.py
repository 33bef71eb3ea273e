"""The first draft of a cluster file, from what Slurm says where it runs; every guess says where it comes from."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

from hpc_utils import paths
from hpc_utils.provenance.machine import infiniband, network
from hpc_utils.records import atomic
from hpc_utils.workspace import environment

from . import cluster
from .slurm_commands import seconds
from .slurm_discovery import Nodes, Survey, survey

HOUR = 3600
UNKNOWN = ["fp32", "fp16"]
# What GPUs compute usefully, by the vendors' architecture papers: tf32 and bf16 from Ampere on, bf16 on every MI.
PRECISIONS = {
    "p100 v100 t4": ["fp32", "fp16"],
    "a10 a30 a40 a100 l4 l40 l40s h100 h200 gh200 b200": ["fp32", "tf32", "fp16", "bf16"],
    "mi100 mi210 mi250 mi250x mi300a mi300x": ["fp32", "fp16", "bf16"],
}
SOFTWARE = """\
[software]
modules = []                        # FILL IN if Python 3.11 needs one, such as ["python/3.11"]
environment = ".venv"               # in the clone
container = ""                      # or an Apptainer image, see env/
torch = ""                          # FILL IN: the build for the GPU nodes' driver, such as cu126 (nvidia-smi there)"""


def init(name: str = "") -> Path:
    """Write jobs/clusters/<name>.toml, by default under the cluster's own name, and return its path.

    Raises:
        ClusterError: there is such a file already, or the name is none. SlurmError: there is no Slurm here.
    """
    found = survey()
    name = name or _label(found.cluster)
    if not re.fullmatch(cluster.NAME, name):
        raise cluster.ClusterError(f"{name!r}: a cluster's name is {cluster.NAME_ALLOWED}")
    path = paths.clusters() / f"{name}.toml"
    if path.exists():
        raise cluster.ClusterError(f"{path} is there already: give another name, or remove it")
    atomic.write_text(path, draft(found, environment()))
    cluster.read(name)
    return path


def draft(found: Survey, variables: Mapping[str, str]) -> str:
    """The file's text: GPUs first, of them the site's default partition first."""
    order = {name: (not one.default, place) for place, (name, one) in enumerate(found.partitions.items())}
    nodes = sorted(found.nodes, key=lambda one: (not one.gpus, order[one.partition]))
    about = f"Drafted by `hpc cluster init` on {date.today()}; lines with FILL IN are not known to Slurm."
    head = f"title = {_toml(found.cluster)}\nabout = {_toml(about)}"
    types = [_nodes(found, one, name) for one, name in zip(nodes, _names(nodes), strict=True)]
    return "\n\n".join([head, _slurm(found, nodes), *types, SOFTWARE, _network(), _storage(variables)]) + "\n"


def _slurm(found: Survey, nodes: list[Nodes]) -> str:
    account, of = "", "FILL IN: if the site asks for one"
    if len(found.accounts) == 1:
        account, of = found.accounts[0], "sacctmgr show associations: your only one"
    elif found.accounts:
        of = f"FILL IN: one of {', '.join(found.accounts)}"
    limit = found.partitions[nodes[0].partition].max_time if nodes else ""
    time = limit if (seconds(limit) or HOUR) < HOUR else "01:00:00"
    lines = [("account", account, of), ("time", time, f"of one training job; the partition allows {limit}")]
    if any(one.threads > 1 for one in nodes):
        comment = "sinfo %Z: Slurm counts hyper-threads; this gives whole cores"
        lines.append(("options", ["--hint=nomultithread"], comment))
    return _table("slurm", lines)


def _nodes(found: Survey, one: Nodes, name: str) -> str:
    partition, (gpu, known, source) = found.partitions[one.partition], _gpu(one)
    gpus, precisions = [], ("precisions", ["fp32", "bf16"], "")
    if one.gpus:
        gpus = [("gpus", one.gpus, "sinfo %G"), ("gpu", gpu, source)]
        gpus += [("gres", f"gpu:{one.gres}" if one.gres else "", "")]
        precisions = ("precisions", known or UNKNOWN, "" if known else "FILL IN tf32 and bf16 if it has them")
    limit = "MaxNodes" if partition.max_nodes else "as many as there are; a QOS may allow fewer"
    lines = [
        ("partition", one.partition, f"sinfo: {one.count} nodes such as {one.example}"),
        *gpus,
        ("cores", one.cores, f"scontrol show node {one.example}: CPUEfctv / ThreadsPerCore"),
        ("memory", "", f"scontrol show partition: {partition.memory or 'no default'}; 0 is all of the node"),
        ("exclusive", partition.exclusive, "scontrol show partition: OverSubscribe"),
        ("most_nodes", partition.max_nodes or one.count, limit),
        precisions,
        ("price", 1.0, "FILL IN: what a node costs for an hour, in `unit`"),
        ("unit", "node-hours", ""),
    ]
    return _table(f"nodes.{name}", lines)


def _network() -> str:
    names = [one.name for one in network() or ()]
    fast = sorted(name for name in names if name.startswith(("ib", "hsn")))
    here = f"this node has {', '.join(fast)}: " if fast else ""
    rates = [float(port.rate.split()[0]) for port in infiniband() or () if port.rate]
    lines = [
        ("interface", fast[0] if fast else "", f"FILL IN: {here}`ip -brief link` on a compute node"),
        ("link_gbit", sum(rates), f"FILL IN: {'as of this node' if rates else 'not known here'}"),
    ]
    return _table("network", lines)


def _storage(variables: Mapping[str, str]) -> str:
    there = [name for name in ("SCRATCH", "WORK", "PROJECT", "CINECA_SCRATCH", "FAST") if variables.get(name)]
    example = f', such as "${there[0]}/study"' if there else ""
    lines = [
        ("results", "", f"in the clone; FILL IN a folder of a parallel file system{example}"),
        ("data", "", "in the clone"),
        ("node_local", "", 'FILL IN such as "$TMPDIR" if nodes have a disk'),
    ]
    return _table("storage", lines)


def _table(name: str, lines: Iterable[tuple[str, object, str]]) -> str:
    """A table of (key, value, comment)."""
    texts = [(f"{key} = {_toml(value)}", comment) for key, value, comment in lines]
    return "\n".join([f"[{name}]", *(f"{text:<36}# {comment}" if comment else text for text, comment in texts)])


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # TOML and JSON write strings, numbers and lists alike


def _gpu(one: Nodes) -> tuple[str, list[str], str]:
    """(name, precisions, source) of a GPU by what Slurm calls it, such as nvidia_a100-sxm4-80gb, or by the nodes'
    features; no precisions if it is not a known one."""
    for text, source in ((one.gres, "sinfo %G"), (one.features, f"scontrol show node {one.example}: features")):
        words = set(re.split(r"[^a-z0-9]+", text.lower()))
        for names, precisions in PRECISIONS.items():
            if found := words & set(names.split()):
                return min(found), precisions, f"{source}: {text}"
    return _label(one.gres) if one.gres else "unknown", [], f"FILL IN: Slurm calls it {one.gres or 'nothing'}"


def _names(nodes: list[Nodes]) -> list[str]:
    """A name for each type: its partition's, followed by GPU or cores where a partition has several."""
    several = [one.partition for one in nodes]
    names: list[str] = []
    for one in nodes:
        kind = _gpu(one)[0] if one.gpus else f"{one.cores}cores"
        name = _label(f"{one.partition}-{kind}" if several.count(one.partition) > 1 else one.partition)
        numbered = (f"{name}-n{number}" for number in itertools.count(2))
        names.append(next(n for n in itertools.chain([name], numbered) if n not in names))
    return names


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:28].strip("-") or "nodes"
