"""What a report's numbers rest on: the records of a result set, what its chapters handed on, and whether that is true still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpc_utils import records

from . import freshness, ledger


@dataclass(frozen=True)
class Evidence:
    """Of one result set, or of one of its studies.

    Attributes:
        found: all runs of the set. wanted: ids of those to show; None for all.
        handed: values, figures and tables. faults: sentences about what is stale.
    """

    results: Path
    found: records.Records
    handed: ledger.Handed
    faults: Sequence[str] = ()
    wanted: frozenset[str] | None = None


def gather(
    results: Path, chapters: Sequence[Path] = (), *, study: str | None = None, found: records.Records | None = None
) -> Evidence:
    """The evidence in the set; of a study its runs, what `chapters` (executed notebooks) handed on, and the runs behind that.

    Values that cannot be read are none, and `faults` says why. `found`: what `records.load` says of the whole set, where
    somebody has read it already.

    Raises:
        UnknownStudy: the study was never run with these results.
    """
    results = Path(results)
    found = records.load(results) if found is None else found
    try:
        handed = ledger.read(results)
    except ledger.LedgerError as error:
        handed, faults = ledger.Handed(), [str(error)]
    else:
        faults = [
            *freshness.faults(results, handed=handed, found=found),
            *freshness.computed_otherwise(results, handed),
        ]
    if study is None:
        return Evidence(results, found, handed, faults)
    own = {path.resolve() for path in chapters}
    pages = {stem: page for stem, page in handed.pages.items() if (results / page["executed"]).resolve() in own}
    handed = replace(
        handed,
        pages=pages,
        values={name: value for name, value in handed.values.items() if handed.of[name] in pages},
        figures={name: drawn for name, drawn in handed.figures.items() if drawn.page in pages},
        tables={name: drawn for name, drawn in handed.tables.items() if drawn.page in pages},
    )
    wanted = records.read_study(study, results).run_ids
    wanted.update(
        run for part in (handed.values, handed.figures, handed.tables) for one in part.values() for run in one.runs
    )
    return Evidence(results, found, handed, faults, frozenset(wanted))
