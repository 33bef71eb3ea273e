"""What a report's numbers rest on: the records of a result set, what its chapters exported, and whether that is true still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpc_utils import records

from . import exports, staleness


@dataclass(frozen=True)
class Evidence:
    """Of one result set, or of one of its studies.

    Attributes:
        found: all runs of the set. wanted: ids of those to show; None for all.
        exported: tables and figures. faults: sentences about what is stale.
    """

    results: Path
    found: records.Records
    exported: exports.Exports
    faults: Sequence[str] = ()
    wanted: frozenset[str] | None = None


def gather(
    results: Path, chapters: Sequence[Path] = (), *, study: str | None = None, found: records.Records | None = None
) -> Evidence:
    """The evidence in the set; of a study its runs, what `chapters` (executed notebooks) exported, and the runs behind that.

    Values that cannot be read are none, and `faults` says why. `found`: what `records.load` says of the whole set, where
    somebody has read it already.

    Raises:
        UnknownStudy: the study was never run with these results.
    """
    results = Path(results)
    found = records.load(results) if found is None else found
    try:
        exported = exports.read(results)
    except exports.ExportError as error:
        exported, faults = exports.Exports(), [str(error)]
    else:
        faults = [
            *staleness.faults(results, exported=exported, found=found),
            *staleness.computed_otherwise(results, exported),
        ]
    if study is None:
        return Evidence(results, found, exported, faults)
    own = {path.resolve() for path in chapters}
    pages = {stem: page for stem, page in exported.pages.items() if (results / page["executed"]).resolve() in own}
    exported = replace(
        exported,
        pages=pages,
        figures={name: drawn for name, drawn in exported.figures.items() if drawn.page in pages},
        tables={name: drawn for name, drawn in exported.tables.items() if drawn.page in pages},
    )
    wanted = records.read_study(study, results).run_ids
    wanted.update(run for part in (exported.figures, exported.tables) for one in part.values() for run in one.runs)
    return Evidence(results, found, exported, faults, frozenset(wanted))
