"""The evidence of a report: records of a result set, exports of its chapters, and the stale ones."""

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
    """The evidence in the set; of a study its runs, the exports of `chapters` (executed notebooks), and the runs behind them.

    Exports that cannot be read are omitted, with the reason in `faults`. `found`: `records.load` of the whole set, if it is already
    read.

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
    kinds = {
        kind: {name: one for name, one in getattr(exported, kind).items() if one.page in pages}
        for kind in exports.KINDS
    }
    wanted = records.read_study(study, results).run_ids
    wanted.update(run for part in kinds.values() for one in part.values() for run in one.runs)
    return Evidence(results, found, replace(exported, pages=pages, **kinds), faults, frozenset(wanted))
