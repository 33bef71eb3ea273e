"""Clusters as data: what a job must ask for there, and what the machine is.

    cluster = read("lumi-g")            # jobs/clusters/lumi-g.toml, or a path to a file
    node = cluster.node("gpu")          # one of its node types; the default one without a name
    cluster.overrides("strong", "gpu")  # what a study does differently there

A wrong file is refused by file, key and what is allowed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, model_validator

from hpc_utils import paths, provenance, toml_config
from hpc_utils.capability import shortest_period
from hpc_utils.config import RunConfig
from hpc_utils.provenance import HardwareId
from hpc_utils.toml_config import Strict

from .resources import Label, Module, NodeType, Slurm, Text, Word

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}"
NAME_ALLOWED = "letters, digits and . _ -, at most 31 long"


class ClusterError(ValueError):
    """A cluster file is missing or wrong, or it does not fit what is asked of it."""

    exit_code = 2


class Software(Strict):
    """What a job sets up before Python starts.

    `module_use`, `modules`: given to `module use` and `module load`, in order. `environment`: a virtual environment
    (relative to the clone); "" takes the `python` that is there then. `container`: an Apptainer image in which the
    ranks run, with Python and torch in it, and `bind`: more paths to see there. `torch`: the build that fits the
    driver, such as cu126 or rocm6.2. `warm_start`: ranks are forked from one process a node (`launch.warm`).
    """

    module_use: list[Text] = Field([])
    modules: list[Module] = Field([])
    environment: Text = ""
    container: Text = ""
    bind: list[Text] = Field([])
    torch: Word = ""
    warm_start: bool = True


class Network(Strict):
    """`interface`: where ranks meet (gloo's and NCCL's sockets); "" lets them choose. `link_gbit`: nominal, of a node
    in each direction; 0 is not known."""

    interface: Word = ""
    link_gbit: float = Field(0, ge=0, allow_inf_nan=False)


class Storage(Strict):
    """Folders on the cluster; they may use its variables, as in "$SCRATCH/study".

    `results`, `data`: "" is the clone's own. `node_local`: a disk of each node that data sets are copied to; "" is none.
    """

    results: Text = ""
    data: Text = ""
    node_local: Text = ""


class Overrides(Strict):
    """What a study does differently on a cluster. `ranks` replaces that of every series but those of one process without
    a group; `parameters` come over the study's and the series'; `matrix` replaces values by name."""

    ranks: list[Annotated[int, Field(gt=0)]] | None = Field(None, min_length=1)
    repeats: int | None = Field(None, ge=1)
    parameters: dict[str, Any] = Field({})
    matrix: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field({})

    @model_validator(mode="after")
    def _known(self) -> Overrides:
        for name in (*self.parameters, *self.matrix):
            meant = toml_config.nearest(name, RunConfig.model_fields, cutoff=0.8)
            if name not in RunConfig.model_fields and meant:  # others are a notebook's own
                raise ValueError(f"unknown parameter {name!r}: did you mean {meant}?")
        return self


class Cluster(Strict):
    """A cluster file's content. `about`: where its facts come from. `rehearsal`: it lives on this machine."""

    title: Text
    about: str = ""
    default: Label | None = None
    rehearsal: bool = False
    slurm: Slurm = Slurm()
    nodes: dict[Label, NodeType] = Field(min_length=1)
    software: Software = Software()
    network: Network = Network()
    storage: Storage = Storage()
    studies: dict[str, Overrides] = Field({})
    _name: str = PrivateAttr("")
    _source: str = PrivateAttr("")
    _links: str | None = PrivateAttr(None)
    _share: float | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _consistent(self) -> Cluster:
        if self.default and self.default not in self.nodes:
            raise ValueError(f"default: no [nodes.{self.default}]; {toml_config.hint(self.default, self.nodes)}")
        known = {path.stem for path in paths.studies().glob("*.toml")} | {"all"}
        for study in self.studies:
            meant = toml_config.nearest(study, known, cutoff=0.8)
            if study not in known and meant:  # others are the user's own
                raise ValueError(f"studies.{study}: no such study; did you mean {meant}?")
        for name, node in self.nodes.items():
            node._name = name
        return self

    @property
    def name(self) -> str:
        """The file's name without .toml."""
        return self._name

    @property
    def source(self) -> str:
        """The name or path by which it was read."""
        return self._source

    def node(self, name: str = "") -> NodeType:
        """The node type of that name; without one the default, which is the first if the file names none.

        Raises:
            ClusterError: there is none of that name.
        """
        name = name or self.default or next(iter(self.nodes))
        if name not in self.nodes:
            raise ClusterError(f"cluster {self.name} has no node type {name!r}: {toml_config.hint(name, self.nodes)}")
        return self.nodes[name]

    @property
    def links(self) -> str | None:
        """What a rehearsal's links are limited to by hand, such as `1gbit`; "" without a limit; None where they cannot be
        limited."""
        return self._links

    @property
    def share(self) -> float | None:
        """The share of a core that a rehearsal's node has for its one rank; None: whole cores."""
        return self._share

    def rehearsed(self, *, links: str | None, share: float | None = None) -> Cluster:
        """The same rehearsal with such links, and with nodes whose device is that share of a core (None: whole cores)."""
        other = self.model_copy()
        other._links, other._share = links, share
        return other

    def hardware_id(self, node_type: str = "") -> str:
        """What measurements there compare with (HPC_CLUSTER). A rehearsal's carry the machine that it is on, and what
        its links are limited to by hand: see `provenance.HardwareId`."""
        name = f"{self.name}-{self.node(node_type).name}"
        if not self.rehearsal:
            return name
        return str(HardwareId(name, provenance.fingerprint(provenance.hardware()), self._links or ""))

    def overrides(self, study: str, node_type: str = "") -> Overrides:
        """What that study does differently there: [studies.all], with [studies.<study>] on top; the device is that
        of the node type unless one of them says otherwise."""
        layers = [self.studies[name] for name in ("all", study) if name in self.studies]
        parameters: dict[str, Any] = {"device": self.node(node_type).device}
        matrix: dict[str, list[Any]] = {}
        for layer in layers:
            parameters |= layer.parameters
            matrix |= layer.matrix
        if self._share:
            usual = RunConfig.model_fields["share_period"].default
            parameters |= {"cores_per_rank": self._share, "threads_per_rank": None}
            parameters |= {"share_period": max(usual, shortest_period(self._share))}
        last = {name: getattr(layer, name) for layer in layers for name in layer.model_fields_set}
        kept = {name: last[name] for name in ("ranks", "repeats") if name in last}
        return Overrides(**kept, parameters=parameters, matrix=matrix)


def prices(hardware_ids: Iterable[str]) -> dict[str, NodeType]:
    """{hardware_id: how such a node is billed}.

    A rehearsal's nodes cost the same on any machine and over any links. Those that no cluster file describes are left out;
    a file that cannot be read is named on stderr.
    """
    return {hardware: one.nodes[name] for hardware, (one, name) in _described(hardware_ids).items()}


def link_gbits(hardware_ids: Iterable[str]) -> dict[str, float]:
    """{hardware_id: a node's link in Gbit/s}: what it is limited to by hand, else the nominal one; see `prices`."""
    nominal = {hardware: one.network.link_gbit for hardware, (one, _) in _described(hardware_ids).items()}
    limited = {hardware: HardwareId.parse(hardware).link_gbit for hardware in hardware_ids}
    return {hardware: gbit for hardware, gbit in [*nominal.items(), *limited.items()] if gbit}


def files(hardware_ids: Iterable[str]) -> list[Path]:
    """The files that say what these nodes cost and how they are linked."""
    return sorted({paths.clusters() / f"{one.name}.toml" for one, _ in _described(hardware_ids).values()})


def _described(hardware_ids: Iterable[str]) -> dict[str, tuple[Cluster, str]]:
    """{hardware_id: the cluster whose file describes it, and the node type there}."""
    clusters = []
    for name in known():
        try:
            clusters.append(read(name))
        except ClusterError as error:
            print(f"left out: {error}", file=sys.stderr)
    described = {f"{one.name}-{name}": (one, name) for one in clusters for name in one.nodes}
    found = {}
    for hardware in hardware_ids:
        anywhere = described.get(HardwareId.parse(hardware).name)
        if anywhere and anywhere[0].rehearsal:
            found[hardware] = anywhere
        elif hardware in described:
            found[hardware] = described[hardware]
    return found


def known() -> list[str]:
    """The names of the clusters in jobs/clusters."""
    return sorted(path.stem for path in paths.clusters().glob("*.toml"))


def read(name: str | Path) -> Cluster:
    """The cluster `name` of jobs/clusters, or the cluster file at that path.

    Raises:
        ClusterError: no such cluster, or a wrong file.
    """
    path = Path(name) if str(name).endswith(".toml") else paths.clusters() / f"{name}.toml"
    try:
        cluster = toml_config.read(path, Cluster, ClusterError)
    except FileNotFoundError:
        raise ClusterError(
            f"no cluster {str(name)!r}: {toml_config.hint(str(name), known())} "
            f"(or give a path to a .toml; on a cluster `hpc cluster init` drafts one)"
        ) from None
    if not re.fullmatch(NAME, path.stem):
        raise ClusterError(f"{path}: a cluster's name is {NAME_ALLOWED}")
    cluster._name, cluster._source = path.stem, str(name)
    return cluster
