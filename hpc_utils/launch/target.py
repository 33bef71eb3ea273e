"""The target of a study's runs: this machine, or nodes of one type of a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpc_utils import capability, device_share, launcher, profilers, provenance
from hpc_utils.allreduce_cost import evenly
from hpc_utils.config import ConfigError
from hpc_utils.plural import counted

from .cluster import Overrides
from .parameters import options
from .request import Layout


@dataclass(frozen=True)
class Variant:
    """What a command changes of a study.

    Attributes:
        name: of its results; "": the study's. parameters: of every run; a matrix or ablation keeps its values.
        ranks: of every series but those of one process. repeats: instead of the files' number.
        precision, at_most: for further repeats, instead of the study file's.
    """

    name: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[int, ...] = ()
    repeats: int | None = None
    precision: float | None = None
    at_most: int | None = None

    @property
    def options(self) -> list[str]:
        """The options of a command that makes it."""
        values = {"ranks": ",".join(map(str, self.ranks)), "repeats": self.repeats, "as": self.name}
        values |= {"precision": self.precision, "at-most": self.at_most}
        return [*options(self.parameters), *(f"--{name}={value}" for name, value in values.items() if value)]


PLAIN = Variant()
UNCHANGED = Overrides()


@dataclass(frozen=True)
class Target:
    """The properties of a machine that a study depends on.

    Attributes:
        hardware: part of every run's id; measurements on different hardware are different runs.
        ranks_per_node: most ranks on a node; None: all on this one. most_nodes: of one job; None: any.
        cores: of a node; 0: not known.
        precisions: in which its devices compute usefully, as its cluster file lists them; empty: not known.
        gpus: their vendor, "nvidia" or "amd"; "" without GPUs, or if unknown. gpu: their name, or a part of it, such
            as h200.
        fixed_links: why the nodes' links cannot be limited for a run; "" if they can.
        is_here: whether this machine's own devices compute. in_container: whether ranks have a container's Python.
        overrides: what the cluster file changes of the study. variant: what the command changes, which counts more.
        command: runs the study STUDY there, after the commands `setup`. cluster_file: it describes the nodes.
    """

    hardware: str
    ranks_per_node: int | None = None
    most_nodes: int | None = None
    cores: int = 0
    precisions: Collection[str] = ()
    gpus: str = ""
    gpu: str = ""
    fixed_links: str = "its links are fixed; a rehearsal cluster's can be limited"
    is_here: bool = False
    in_container: bool = False
    overrides: Overrides = UNCHANGED
    variant: Variant = PLAIN
    command: str = ""
    setup: tuple[str, ...] = ()
    cluster_file: Path | None = None

    @classmethod
    def here(cls, variant: Variant = PLAIN) -> Target:
        """This machine, on which the launcher runs."""
        return cls(
            provenance.hardware_id(),
            cores=len(provenance.core_groups()),
            is_here=True,
            variant=variant,
            command=shlex.join(["hpc", "study", "run", "STUDY", *variant.options]),
            gpu=next((str(gpu.name) for gpu in provenance.hardware().gpus), ""),
        )

    @property
    def ranks(self) -> Sequence[int] | None:
        """Instead of those of every series but of one process."""
        return self.variant.ranks or self.overrides.ranks

    @property
    def repeats(self) -> int | None:
        """Instead of the study's."""
        return self.variant.repeats or self.overrides.repeats

    @property
    def parameters(self) -> dict[str, Any]:
        """Of every run; an ablation keeps its values."""
        return self.overrides.parameters | dict(self.variant.parameters)

    def index_name(self, study: str) -> str:
        """The name of that study's index, or of its variant's."""
        name = self.variant.name or study
        return f"{name}-{self.hardware}" if self.cluster_file else name

    def layout(self, ranks: int, most: int | None = None) -> Layout:
        """`ranks` on as few nodes as hold them evenly, at most `most` on each even where more would fit: 12 by 8 is
        2 x 6."""
        return Layout(*evenly(ranks, min(self.ranks_per_node or ranks, most or ranks)))

    def refusal(self, layout: Layout, parameters: Mapping[str, Any]) -> str:
        """Why a run with this layout and these parameters cannot be made here; empty if it can."""
        precision = str(parameters.get("precision", "fp32"))
        device = parameters.get("device", "auto")
        profile = parameters.get("profile")
        nodes = f"{layout.ranks} ranks need {layout.nodes} nodes of {layout.ranks_per_node}"
        if self.ranks_per_node is None and layout.nodes > 1:
            return f"{nodes}: {self.hardware} is one machine"
        if self.most_nodes and layout.nodes > self.most_nodes:
            return f"{nodes}: at most {self.most_nodes} on {self.hardware}"
        if device == "cuda" and not (self.gpus or self.gpu) and (self.is_here or self.cluster_file):
            return f"device=cuda on {self.hardware}: no GPU"
        threads = parameters.get("threads_per_rank")
        if self.cores and isinstance(threads, int) and threads > self.cores:
            return f"more threads than the {counted(self.cores, 'core')} of a node ({self.hardware})"
        if why := self._cannot_limit_links(layout, parameters.get("link_gbit")):
            return f"link_gbit={parameters['link_gbit']:g} on {self.hardware}: {why}"
        if why := self._cannot_profile(profile):
            return f"profile={profile} on {self.hardware}: {why}"
        if share := parameters.get("cores_per_rank"):
            why = "a share of a core is a device of the CPU"
            if device != "cuda":
                why = device_share.unavailable() if self.is_here else ""
            if why:
                return f"cores_per_rank={share} on {self.hardware}: {why}"
        gpus = len(provenance.hardware().gpus) if self.is_here else 0
        on_cpu = device == "cpu" or (self.is_here and device != "cuda" and not gpus)
        if self.is_here and not on_cpu and layout.ranks > gpus:
            return f"{layout.ranks} ranks on {self.hardware}: {counted(gpus, 'GPU')}"
        why = capability.of_precision(precision, self.precisions)
        if on_cpu and self.is_here and (precision == "bf16" or not self.precisions):  # a rehearsal's file lists fp16
            why = capability.of_cpu(precision, bf16=not provenance.emulates_bf16())
        if why:
            return f"{precision} on {self.hardware}: {why}"
        why = capability.of_device(parameters, gpu=not on_cpu)
        if not why and self.is_here:  # a cluster's compilers are known to its jobs only
            why = capability.of_compiler(parameters.get("compile"))
        own_launcher = launcher.find_launcher(str(parameters.get("workload", "")))
        why = why or (own_launcher.refusal() if own_launcher else "")
        return f"{why} ({self.hardware})" if why else ""

    def _cannot_limit_links(self, layout: Layout, gbit: object) -> str:
        if not isinstance(gbit, int | float):  # no limit; other types are refused by `prepare`
            return ""
        if self.fixed_links:
            return self.fixed_links
        if layout.nodes == 1 < layout.ranks:
            return f"{layout.ranks} ranks of one node have no link between them (ranks_per_node = 1 lays them out)"
        return ""

    def _cannot_profile(self, profile: object) -> str:
        """A reason that is known before the run; a cluster's jobs may load the profiler's module."""
        if profile in profilers.STARTING and self.gpus == "amd":
            return "it profiles NVIDIA's GPUs, and these are AMD's"
        if self.is_here and isinstance(profile, str):
            try:
                profilers.require(profile)
            except ConfigError as error:
                return str(error).partition(": ")[2]
        return ""
