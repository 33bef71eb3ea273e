"""What stands behind the chapters in the page: numbers, figures, tables and runs, ready for its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpc_utils.publish.evidence import Evidence

from .embedded import embedded
from .numbers import Number, drawn_of, origins
from .runs import Runs, runs_of


@dataclass(frozen=True)
class Parts:
    """`drawn`: rows of figures and of tables. `embedded`: JSON for the script. `places`: all their anchors."""

    faults: Sequence[str] = ()
    drawn: dict[str, list[Number]] = field(default_factory=dict)
    runs: Runs | None = None
    embedded: str = ""
    places: frozenset[str] = frozenset()

    def figures_of(self, chapter: str) -> dict[str, Number]:
        """The figures of the chapter with this anchor, by name."""
        return {one.name: one for one in self.drawn.get("figures", ()) if one.origin and one.origin.anchor == chapter}


def parts_of(evidence: Evidence, page: Path, chapters: Mapping[Path, str]) -> Parts:
    """The parts for the page in the file `page`; `chapters` are the anchors of those that are bound, by their files."""
    exported, results = evidence.exported, evidence.results
    by = origins(exported, results, page, chapters)
    drawn = {
        kind: rows for kind in ("figures", "tables") if (rows := drawn_of(getattr(exported, kind), results, page, by))
    }
    runs = runs_of(results, page, evidence.found, evidence.wanted)
    rests = {
        kind: {name: one.runs for name, one in getattr(exported, kind).items()} for kind in ("figures", "tables")
    }
    places = {run.anchor for run in runs.rows}
    places |= {f"{kind[:-1]}-{one.name}" for kind, rows in drawn.items() for one in rows}
    return Parts(evidence.faults, drawn, runs, embedded(runs.rows, rests), frozenset(places))
