"""Where a study's runs go: this machine, or nodes of one type of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpc_utils import provenance

from .request import Layout


@dataclass(frozen=True)
class Place:
    """What a study must know of the machine that it runs on.

    Attributes:
        hardware: part of every run's id; measurements on different hardware are different runs.
        ranks_per_node: most ranks on a node; None: all on this one. most_nodes: of one job; None: any.
        unfit: why a run in a precision is not worth making on its devices; "" if it is.
        ranks, repeats, parameters, matrix: what to take here instead of what the study says.
    """

    hardware: str
    ranks_per_node: int | None = None
    most_nodes: int | None = None
    unfit: Callable[[str], str] = lambda precision: ""
    ranks: tuple[int, ...] | None = None
    repeats: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    matrix: Mapping[str, list[Any]] = field(default_factory=dict)

    @classmethod
    def here(cls) -> Place:
        """This machine, on which the launcher runs."""
        return cls(provenance.hardware_id())

    def layout(self, ranks: int) -> Layout:
        """`ranks` on as few nodes as hold them evenly."""
        return Layout.of(ranks, self.ranks_per_node or ranks)

    def refusal(self, ranks: int, precision: str) -> str:
        """Why a run of this many ranks in this precision cannot be made here; empty if it can."""
        layout = self.layout(ranks)
        if self.most_nodes and layout.nodes > self.most_nodes:
            return (
                f"{ranks} ranks need {layout.nodes} nodes of {self.ranks_per_node}: at most {self.most_nodes} "
                f"on {self.hardware}"
            )
        why = self.unfit(precision)
        return f"{precision} on {self.hardware}: {why}" if why else ""
