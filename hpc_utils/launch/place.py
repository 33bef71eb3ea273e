"""Where a study's runs go: this machine, or nodes of one type of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpc_utils import capability, device_share, provenance
from hpc_utils.config import ConfigError
from hpc_utils.profilers import tools

from .request import Layout


@dataclass(frozen=True)
class Place:
    """What a study must know of the machine that it runs on.

    Attributes:
        hardware: part of every run's id; measurements on different hardware are different runs.
        ranks_per_node: most ranks on a node; None: all on this one. most_nodes: of one job; None: any.
        unfit: why a run in a precision is not worth making on its devices; "" if it is.
        gpus: whose they are, "nvidia" or "amd"; "" where it has none, or nobody says.
        fixed_links: why the nodes' links cannot be limited for a run; "" if they can.
        is_here: whether this machine's own devices compute: then its processor has a say too.
        ranks, repeats, parameters, matrix: what to take here instead of what the study says.
    """

    hardware: str
    ranks_per_node: int | None = None
    most_nodes: int | None = None
    unfit: Callable[[str], str] = lambda precision: ""
    gpus: str = ""
    fixed_links: str = "its links are what they are; a rehearsal cluster's can be limited"
    is_here: bool = False
    ranks: tuple[int, ...] | None = None
    repeats: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    matrix: Mapping[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def here(cls, parameters: Mapping[str, Any] | None = None, repeats: int | None = None) -> Place:
        """This machine, on which the launcher runs."""
        return cls(provenance.hardware_id(), is_here=True, parameters=parameters or {}, repeats=repeats)

    def layout(self, ranks: int, most: int | None = None) -> Layout:
        """`ranks` on as few nodes as hold them evenly, at most `most` on each even where more would fit."""
        return Layout.of(ranks, min(self.ranks_per_node or ranks, most or ranks))

    def refusal(self, ranks: int, given: Mapping[str, Any], most: int | None = None) -> str:
        """Why a run of this many ranks, so laid out, with these parameters cannot be made here; empty if it can."""
        precision, device = given.get("precision", "fp32"), given.get("device", "auto")
        layout = self.layout(ranks, most)
        if self.ranks_per_node is None and layout.nodes > 1:
            return f"{ranks} ranks, {most} on a node, need {layout.nodes} nodes: {self.hardware} is one machine"
        if self.most_nodes and layout.nodes > self.most_nodes:
            return (
                f"{ranks} ranks need {layout.nodes} nodes of {min(self.ranks_per_node, most or ranks)}: at most "
                f"{self.most_nodes} on {self.hardware}"
            )
        if isinstance(given.get("link_gbit"), int | float):  # anything else is refused as what it is
            limited = f"link_gbit={given['link_gbit']:g} on {self.hardware}"
            if self.fixed_links:
                return f"{limited}: {self.fixed_links}"
            if layout.nodes == 1 < ranks:
                return f"{limited}: {ranks} ranks of one node have no link between them (ranks_per_node = 1 lays them out)"
        if why := self._blind(given.get("profile")):
            return f"profile={given['profile']} on {self.hardware}: {why}"
        if given.get("cores_per_rank") and device == "cuda":
            return f"cores_per_rank={given['cores_per_rank']} on {self.hardware}: a share of a core is a CPU's device"
        if given.get("cores_per_rank") and self.is_here and (why := device_share.unavailable()):
            return f"cores_per_rank={given['cores_per_rank']} on {self.hardware}: {why}"
        if why := self.unfit(precision) or self._emulated(precision, device):
            return f"{precision} on {self.hardware}: {why}"
        why = self._incapable(precision, given.get("compile"), device)
        return f"{why} ({self.hardware})" if why else ""

    def _blind(self, profile: object) -> str:
        """Why that profiler sees nothing there; empty if it may: which modules a cluster's jobs load, only they know."""
        if not isinstance(profile, str):  # none, or refused as what it is
            return ""
        if profile in tools.STARTING and self.gpus == "amd":
            return "it watches NVIDIA's GPUs, and these are AMD's"
        if profile in tools.PROGRAMS and self.is_here:
            try:
                tools.require(profile)
            except ConfigError as error:
                return str(error).partition(": ")[2]
        return ""

    def _incapable(self, precision: object, compile: object, device: object) -> str:
        """Why its devices cannot compute so, or this machine cannot compile; of a cluster's compilers only jobs know."""
        on_cpu = device == "cpu" or self._computes_on_cpu(device)
        why = capability.of_device(precision, compile, gpu=not on_cpu)
        return why or (capability.of_compiler(compile) if self.is_here else "")

    def _computes_on_cpu(self, device: object) -> bool:
        """Whether a run on this `device` of this machine computes on its processor."""
        return self.is_here and (device == "cpu" or (device != "cuda" and not provenance.hardware().gpus))

    def _emulated(self, precision: str, device: str) -> str:
        if precision == "bf16" and self._computes_on_cpu(device) and provenance.emulates_bf16():
            return "this processor has no instructions for it (AVX-512 or later), so torch emulates it, many times slower"
        return ""
