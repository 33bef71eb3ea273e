"""The first draft of a cluster file, from what Slurm tells where it runs; every guess says where it comes from."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

from hpc_utils import paths
from hpc_utils.provenance.machine import infiniband, network
from hpc_utils.records import atomic
from hpc_utils.workspace import environment

from . import cluster, slurm_commands
from .slurm_discovery import Nodes, Survey, survey

HOUR = 3600
UNKNOWN = ["fp32", "fp16"]
# What GPUs compute usefully, by the vendors' architecture papers: tf32 and bf16 from Ampere on, bf16 on every MI.
PRECISIONS = {
    "p100 v100 t4": ["fp32", "fp16"],
    "a10 a30 a40 a100 l4 l40 l40s h100 h200 gh200 b200": ["fp32", "tf32", "fp16", "bf16"],
    "mi100 mi210 mi250 mi250x mi300a mi300x": ["fp32", "fp16", "bf16"],
}


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


def draft(found: Survey, environment: Mapping[str, str]) -> str:
    """The file's text: GPUs first, of them the site's default partition first."""
    order = {name: (not one.default, place) for place, (name, one) in enumerate(found.partitions.items())}
    nodes = sorted(found.nodes, key=lambda one: (not one.gpus, order[one.partition]))
    sections = [_head(found), _slurm(found, nodes)]
    sections += [_nodes(found, one, name) for one, name in zip(nodes, _names(nodes), strict=True)]
    sections += [_software(), _network(), _storage(environment)]
    return "\n\n".join("\n".join(lines) for lines in map(list, sections)) + "\n"


def _head(found: Survey) -> Iterator[str]:
    about = f"Drafted by `hpc cluster init` on {date.today()}; lines with FILL IN are not known to Slurm."
    yield f"title = {_toml(found.cluster)}"
    yield f"about = {_toml(about)}"


def _slurm(found: Survey, nodes: list[Nodes]) -> Iterator[str]:
    yield "[slurm]"
    if len(found.accounts) == 1:
        yield _line("account", found.accounts[0], "sacctmgr show associations: your only one")
    else:
        of = f"one of {', '.join(found.accounts)}" if found.accounts else "if the site asks for one"
        yield _line("account", "", f"FILL IN: {of}")
    limit = found.partitions[nodes[0].partition].max_time if nodes else ""
    short = (slurm_commands.seconds(limit) or HOUR) < HOUR
    yield _line("time", limit if short else "01:00:00", f"of one training job; the partition allows {limit}")
    if any(one.threads > 1 for one in nodes):
        yield _line(
            "options", ["--hint=nomultithread"], "sinfo %Z: Slurm counts hyper-threads; this gives whole cores"
        )


def _nodes(found: Survey, one: Nodes, name: str) -> Iterator[str]:
    partition = found.partitions[one.partition]
    yield f"[nodes.{name}]"
    yield _line("partition", one.partition, f"sinfo: {one.count} nodes such as {one.example}")
    gpu, known, source = _gpu(one)
    if one.gpus:
        yield _line("gpus", one.gpus, "sinfo %G")
        yield _line("gpu", gpu, source)
        yield _line("gres", f"gpu:{one.gres}" if one.gres else "", "")
    yield _line("cores", one.cores, f"scontrol show node {one.example}: CPUEfctv / ThreadsPerCore")
    yield _line("memory", "", f"scontrol show partition: {partition.memory or 'no default'}; 0 is all of the node")
    yield _line("exclusive", partition.exclusive, "scontrol show partition: OverSubscribe")
    limit = "MaxNodes" if partition.max_nodes else "as many as there are; a QOS may allow fewer"
    yield _line("most_nodes", partition.max_nodes or one.count, limit)
    if one.gpus:
        yield _line("precisions", known or UNKNOWN, "" if known else "FILL IN tf32 and bf16 if it has them")
    else:
        yield _line("precisions", ["fp32", "bf16"], "")
    yield _line("price", 1.0, "FILL IN: what a node costs for an hour, in `unit`")
    yield _line("unit", "node-hours", "")


def _software() -> Iterator[str]:
    yield "[software]"
    yield _line("modules", [], 'FILL IN if Python 3.11 needs one, such as ["python/3.11"]')
    yield _line("environment", ".venv", "in the clone")
    yield _line("container", "", "or an Apptainer image, see env/")
    yield _line("torch", "", "FILL IN: the build for the GPU nodes' driver, such as cu126 (nvidia-smi there)")


def _network() -> Iterator[str]:
    names = [str(one["name"]) for one in network() or ()]
    fast = sorted(name for name in names if name.startswith(("ib", "hsn")))
    yield "[network]"
    here = f"this node has {', '.join(fast)}: " if fast else ""
    yield _line("interface", fast[0] if fast else "", f"FILL IN: {here}`ip -brief link` on a compute node")
    rates = [float(port["rate"].split()[0]) for port in infiniband() or () if port["rate"]]
    yield _line("link_gbit", sum(rates), f"FILL IN: {'as of this node' if rates else 'not known here'}")


def _storage(environment: Mapping[str, str]) -> Iterator[str]:
    there = [name for name in ("SCRATCH", "WORK", "PROJECT", "CINECA_SCRATCH", "FAST") if environment.get(name)]
    yield "[storage]"
    example = f', such as "${there[0]}/study"' if there else ""
    yield _line("results", "", f"in the clone; FILL IN a folder of a parallel file system{example}")
    yield _line("data", "", "in the clone")
    yield _line("node_local", "", 'FILL IN such as "$TMPDIR" if nodes have a disk')


def _line(key: str, value: object, comment: str) -> str:
    text = f"{key} = {_toml(value)}"
    return f"{text:<36}# {comment}" if comment else text


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # of strings, numbers and lists TOML and JSON write the same


def _gpu(one: Nodes) -> tuple[str, list[str], str]:
    """(name, precisions, source) of a GPU by what Slurm calls it, such as nvidia_a100-sxm4-80gb, or by the nodes'
    features; precisions [] if it is none that we know."""
    for said, source in ((one.gres, "sinfo %G"), (one.features, f"scontrol show node {one.example}: features")):
        words = re.split(r"[^a-z0-9]+", said.lower())
        for names, precisions in PRECISIONS.items():
            if found := set(words) & set(names.split()):
                return min(found), precisions, f"{source}: {said}"
    return _label(one.gres) if one.gres else "unknown", [], f"FILL IN: Slurm calls it {one.gres or 'nothing'}"


def _names(nodes: list[Nodes]) -> list[str]:
    """A name for each type: its partition's, with GPU or cores behind where a partition has several."""
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
