"""Cluster files: the resources that jobs request, and the machine.

    cluster = read_cluster("lumi-g")            # jobs/clusters/lumi-g.toml, or a path to a file
    node = cluster.node("gpu")          # one of its node types; the default one without a name
    cluster.overrides("strong", "gpu")  # what a study does differently there

Every text that reaches Slurm or a shell is checked here. A wrong file is refused with file, key and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from hpc_utils import paths, provenance, toml_config
from hpc_utils.capability import shortest_period
from hpc_utils.config import RunConfig
from hpc_utils.provenance import HardwareId
from hpc_utils.records.study import CLUSTERS, Series
from hpc_utils.toml_config import Strict

from .slurm_commands import seconds

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}"
NAME_ALLOWED = "letters, digits and . _ -, at most 31 long"


def _matching(pattern: str) -> Any:
    return Annotated[str, Field(pattern=f"^{pattern}$")]


Text = _matching(r"[^\p{C}\p{Zl}\p{Zp}]*")  # one line
Word = _matching(r"[0-9A-Za-z_.,:@+=-]*")
Label = _matching(r"[a-z0-9][a-z0-9-]{0,30}")
Module = _matching(r"[0-9A-Za-z_.][0-9A-Za-z_./+-]*")  # such as cuda/12.6
Variable = _matching(r"[A-Za-z_][0-9A-Za-z_]*")
Option = _matching(r"--[a-z][ -~]*")  # one sbatch option in full, such as --hint=nomultithread
Memory = _matching(r"([0-9]+[KMGT]?)?")  # of a node, such as 480G; 0 for all of it
Gres = _matching(r"([0-9A-Za-z_.-]+(:[0-9A-Za-z_.-]+)?)?")  # without a count, such as gpu or gpu:a100
Device = _matching(r"([a-z0-9][a-z0-9-]*)?")  # a GPU's name, such as a100 or mi250x
Time = _matching(r"([0-9]+-)?[0-9]{1,3}:[0-9]{2}:[0-9]{2}")  # such as 01:30:00 or 2-00:00:00
Precision = RunConfig.model_fields["precision"].annotation

# sbatch's options that other keys or the jobs set.
OWNED = re.compile(
    "--(partition|account|qos|time|signal|gres|gpus-per-node|cpus-per-task|mem|exclusive|licenses|nodes|ntasks"
    "|ntasks-per-node|array|dependency|output|chdir|export)(=|$)"
)


class ClusterError(ValueError):
    """A cluster file is missing or wrong, or it does not support the request."""

    exit_code = 2


class Slurm(Strict):
    """Slurm options of every job.

    `account`, `qos`: "" is the site's default. `time`: limit of one training job. `signal_seconds`: how long before
    that limit a job receives the signal to write its checkpoint. `options`: more of sbatch's, each one argument.
    """

    account: Word = ""
    qos: Word = ""
    time: Time = "01:00:00"
    signal_seconds: int = Field(120, ge=10)
    options: list[Option] = Field([])

    @property
    def seconds(self) -> int:
        """The time limit in seconds."""
        return seconds(self.time)

    @model_validator(mode="after")
    def _consistent(self) -> Slurm:
        if self.signal_seconds >= self.seconds:
            raise ValueError(f"signal_seconds = {self.signal_seconds} must be less than time = {self.time}")
        if owned := next(filter(OWNED.match, self.options), ""):
            raise ValueError(f"options: {owned.partition('=')[0]} is set by another key or by the jobs themselves")
        return self


class NodeType(Strict):
    """Nodes that are alike.

    Attributes:
        gpus, gpu: devices of a node and their name; 0 and "" where the CPU's cores are the devices.
        gpu_memory: of one device, in GB as its vendor states it; 0 is not known.
        gres: "" requests --gpus-per-node=N, "gpu:a100" requests --gres=gpu:a100:N.
        ranks: most ranks of a node; by default one a GPU, or one a core.
        cores: those a job may use; 0 where only Slurm knows (then `ranks` may be 0 too).
        memory: of the host; "" is the site's default. most_nodes: of one job; 0 is not known, and nothing is planned.
        precisions: what the device computes usefully; runs in others are not applicable.
        price, unit: what a node costs for an hour. licenses: taken by every job.
        variables: environment of every rank; a value may use $NAME of the cluster.
    """

    partition: Word = Field(min_length=1)
    gpus: NonNegativeInt = 0
    gpu: Device = ""
    gpu_memory: NonNegativeInt = 0
    gres: Gres = ""
    ranks: NonNegativeInt = 0
    cores: NonNegativeInt = 0
    memory: Memory = ""
    exclusive: bool = False
    most_nodes: NonNegativeInt = 0
    precisions: list[Precision] = Field(min_length=1)
    price: float = Field(1.0, ge=0, allow_inf_nan=False)
    unit: Text = "node-hours"
    licenses: Word = ""
    variables: dict[Variable, Text] = Field({})
    _name: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> NodeType:
        if bool(self.gpus) != bool(self.gpu) or ((self.gres or self.gpu_memory) and not self.gpus):
            raise ValueError("gpus, gpu: give both, such as 4 and a100, or neither; gres, gpu_memory only with them")
        if self.gpus and self.ranks > self.gpus:
            raise ValueError(f"ranks = {self.ranks}, but a rank has a GPU of its own and a node has {self.gpus}")
        for name in self.variables:
            if name.startswith(("HPC_", "SLURM_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PATH"):
                raise ValueError(f"variables.{name}: it is set by Slurm or by the jobs themselves")
        if not self.ranks:  # the model is frozen
            object.__setattr__(self, "ranks", self.gpus or self.cores)
        return self

    @property
    def name(self) -> str:
        """Its key in the file: [nodes.<name>]."""
        return self._name

    @property
    def device(self) -> str:
        """What `RunConfig.device` is on such a node."""
        return "cuda" if self.gpus else "cpu"

    @property
    def vendor(self) -> str:
        """amd, nvidia, or "" without GPUs."""
        return ("amd" if re.match(r"mi\d", self.gpu) else "nvidia") if self.gpus else ""

    def cost(self, nodes: int, ranks_per_node: int, hours: float, threads: float = 1) -> float:
        """What a job costs, in `unit`: shared nodes are billed by the share of their devices, those without GPUs by
        that of their cores, of which each rank has as many as `threads`. Arguments may be columns."""
        if self.exclusive or not self.ranks:
            return self.price * nodes * hours
        from numpy import maximum

        of_cores = 0 if self.gpus or not self.cores else threads / self.cores
        return self.price * nodes * ranks_per_node * maximum(1 / self.ranks, of_cores) * hours


class Software(Strict):
    """What a job sets up before Python starts.

    `module_use`, `modules`: given to `module use` and `module load`, in order. `environment`: a virtual environment
    (relative to the clone); "" takes the `python` that is there then. `container`: an Apptainer image in which the
    ranks run, with Python and torch in it, and `bind`: more paths to see there. `torch`: the build that fits the
    driver, such as cu126 or rocm6.2. `mpi`: srun's --mpi, such as pmix or pmi2; "" is the site's default.
    """

    module_use: list[Text] = Field([])
    modules: list[Module] = Field([])
    environment: Text = ""
    container: Text = ""
    bind: list[Text] = Field([])
    torch: Word = ""
    mpi: Word = ""


class Network(Strict):
    """`interface`: where ranks meet (gloo's and NCCL's sockets); "" lets them choose. `link_gbit`: nominal, of a node
    in each direction; 0 is not known."""

    interface: Word = ""
    link_gbit: float = Field(0, ge=0, allow_inf_nan=False)


class Storage(Strict):
    """Folders on the cluster; they may use its variables, as in "$SCRATCH/study".

    `results`, `data`: "" is the clone's own. `node_local`: a disk of each node that data sets are copied to; "" is
    none.
    """

    results: Text = ""
    data: Text = ""
    node_local: Text = ""


class Overrides(Strict):
    """What a study does differently on a cluster. `series` replaces the study's; `ranks` that of every series but
    those of one process without a group; `parameters` override the study's and the series', `parameters_of` those of the series
    whose names match the expression; `matrix` replaces values by name; `nodes`: how many a rehearsal is started with for it."""

    series: list[Series] = Field([])
    ranks: list[PositiveInt] | None = Field(None, min_length=1)
    repeats: PositiveInt | None = None
    nodes: PositiveInt | None = None
    parameters: dict[str, Any] = Field({})
    parameters_of: dict[str, dict[str, Any]] = Field({})
    matrix: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field({})


class Machine(NamedTuple):
    """What a running rehearsal has of this machine.

    Attributes:
        links: their manual limit, such as `1gbit`; "" without a limit; None where they cannot be limited.
        share: of a core, that a node has for its one rank; None: whole cores. setup: the commands that start it.
    """

    links: str | None = None
    share: float | None = None
    setup: tuple[str, ...] = ()


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
    _source: str = ""
    _machine: Machine = Machine()

    @model_validator(mode="after")
    def _consistent(self) -> Cluster:
        if self.default and self.default not in self.nodes:
            raise ValueError(f"default: no [nodes.{self.default}]; {toml_config.hint(self.default, self.nodes)}")
        studies = {"all", *paths.study_files()}  # another clone may have more
        for name in self.studies.keys() - studies:
            if near := toml_config.nearest(name, studies, cutoff=0.75):
                raise ValueError(f"[studies.{name}]: no such study; did you mean {near}?")
        for name, node in self.nodes.items():
            node._name = name
        return self

    @property
    def name(self) -> str:
        """The file's name without .toml."""
        return Path(self._source).stem

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
    def machine(self) -> Machine:
        """What a rehearsal has of this machine."""
        return self._machine

    def rehearsed(self, **has: Any) -> Cluster:
        """The same rehearsal, with these fields of its `Machine`."""
        cluster = self.model_copy()
        cluster._machine = Machine(**has)
        return cluster

    def hardware_id(self, node_type: str = "") -> str:
        """What measurements there compare with (HPC_CLUSTER). A rehearsal's include the machine it runs on, and what
        its links are limited to by hand: see `provenance.HardwareId`."""
        name = f"{self.name}-{self.node(node_type).name}"
        if not self.rehearsal:
            return name
        return str(HardwareId(name, provenance.fingerprint(provenance.hardware()), self._machine.links or ""))

    def overrides(self, study: str, node_type: str = "") -> Overrides:
        """What that study does differently there: [studies.all], with [studies.<study>] on top; the device is that
        of the node type unless one of them names another."""
        replacements: dict[str, Any] = {}
        parameters: dict[str, Any] = {"device": self.node(node_type).device}
        matrix: dict[str, list[Any]] = {}
        for layer in (self.studies[name] for name in ("all", study) if name in self.studies):
            parameters |= layer.parameters
            matrix |= layer.matrix
            names = {"series", "ranks", "repeats", "nodes", "parameters_of"}
            replacements |= layer.model_dump(include=names, exclude_unset=True)
        if share := self._machine.share:
            period = RunConfig.model_fields["share_period"].default
            parameters |= {"cores_per_rank": share, "threads_per_rank": None}
            parameters |= {"share_period": max(period, shortest_period(share))}
        return Overrides(**replacements, parameters=parameters, matrix=matrix)


def prices(hardware_ids: Iterable[str]) -> dict[str, NodeType]:
    """{hardware_id: how such a node is billed}; without those that no cluster file describes. A rehearsal's nodes
    cost the same on any machine and over any links."""
    return {hardware: cluster.nodes[name] for hardware, (cluster, name) in _described(hardware_ids).items()}


def link_gbits(hardware_ids: Iterable[str]) -> dict[str, float]:
    """{hardware_id: a node's link in Gbit/s}: its manual limit, else the nominal value; see `prices`."""
    nominal = {hardware: cluster.network.link_gbit for hardware, (cluster, _) in _described(hardware_ids).items()}
    limited = {hardware: HardwareId.parse(hardware).link_gbit for hardware in hardware_ids}
    return {hardware: gbit for hardware, gbit in [*nominal.items(), *limited.items()] if gbit}


def files(hardware_ids: Iterable[str]) -> list[Path]:
    """The files that describe these nodes' prices and links."""
    return sorted({Path(cluster.source) for cluster, _ in _described(hardware_ids).values()})


def _described(hardware_ids: Iterable[str]) -> dict[str, tuple[Cluster, str]]:
    """{hardware_id: the cluster whose file describes it, and the node type there}."""
    names = {hardware: HardwareId.parse(hardware).name for hardware in hardware_ids}
    # A wrong file matters only to those that use its cluster.
    sources = {stem: file(stem) for stem in known()}
    kept = {path.stem: path for path in sorted(paths.results().glob(f"studies/*/{CLUSTERS}/*.toml"))}
    # A committed set keeps those that it was measured with; any set keeps those from elsewhere.
    sources = sources | kept if (paths.results() / paths.PACKED).is_file() else kept | sources
    used = [
        read_cluster(path)
        for stem, path in sources.items()
        if any(name.startswith(f"{stem}-") for name in names.values())
    ]
    types = {f"{cluster.name}-{node}": (cluster, node) for cluster in used for node in cluster.nodes}
    return {hardware: types[name] for hardware, name in names.items() if name in types}


def known() -> list[str]:
    """The names of the clusters in jobs/clusters."""
    return sorted(path.stem for path in paths.clusters().glob("*.toml"))


def file(name: str | Path) -> Path:
    """The cluster file `name` of jobs/clusters, or at that path."""
    return Path(name) if str(name).endswith(".toml") else paths.clusters() / f"{name}.toml"


def read_cluster(name: str | Path) -> Cluster:
    """The cluster `name` of jobs/clusters, or the cluster file at that path.

    Raises:
        ClusterError: no such cluster, or a wrong file.
    """
    path = file(name)
    try:
        cluster = toml_config.read_toml(path, Cluster, ClusterError)
    except FileNotFoundError:
        raise ClusterError(
            f"no cluster {str(name)!r}: {toml_config.hint(str(name), known())} "
            f"(or give a path to a .toml; on a cluster `hpc cluster init` drafts one)"
        ) from None
    if not re.fullmatch(NAME, path.stem):
        raise ClusterError(f"{path}: a cluster's name is {NAME_ALLOWED}")
    cluster._source = str(name)
    return cluster
