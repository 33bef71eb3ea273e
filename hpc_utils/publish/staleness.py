"""Whether what the chapters of a result set exported is still true of its records, files and figures."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import paths, provenance, records
from hpc_utils.records import fingerprint, packed

from . import exports


def faults(
    results: Path, *, exported: exports.Exports | None = None, found: records.Records | None = None
) -> list[str]:
    """What is stale, changed by hand, missing or ambiguous in the set; a sentence each, with what to do.

    Read are `exports/`, the records of the runs, probes and benches that they rest on, figures, tables, and `csv/`.
    `exported`, `found`: what `exports.read` and `records.load` say of the whole set, where somebody has read it already.
    """
    results = Path(results)
    try:
        exported = exports.read(results) if exported is None else exported
    except exports.ExportError as error:
        return [str(error)]
    found = records.load(results) if found is None else found
    return [*_twice(exported), *(line for stem, page in exported.pages.items() for line in _page(results, stem, page, found)),
            *_csv(results, found)]  # fmt: skip


def faults_of(results: Path, stem: str) -> list[str]:
    """`faults` of one page alone, `exports/<stem>.json`."""
    return list(_page(results, stem, exports.read(results).pages[stem], records.load(results)))


def untraceable(results: Path) -> list[str]:
    """The pages that code wrote which no commit holds, or that do not say what the notebook that wrote them was."""
    found = []
    for stem, page in _pages(results).items():
        if page.get("dirty") is not False:
            found.append(
                f"exports/{stem}.json was written by code that was not committed: commit, then {remedy(results, page)}"
            )
        elif not page.get(exports.EXECUTED):
            found.append(
                f"exports/{stem}.json holds no digest of the notebook that wrote it: {remedy(results, page)}"
            )
    return found


def computed_otherwise(results: Path, exported: exports.Exports | None = None) -> list[str]:
    """The pages that other code computed than would now: what reads, analyses and draws, or the chapter itself was edited.

    Their values may still be the same; only executing the chapter anew can tell.
    """
    return [
        f"exports/{stem}.json was computed by other code than is here now (reading, analysis, drawing or the chapter changed): "
        f"{remedy(results, page)}"
        for stem, page in _pages(results, exported).items()
        if page.get("analysis") != provenance.analysis_digest(page["notebook"])[: provenance.SHORT]
    ]


def _pages(results: Path, exported: exports.Exports | None = None) -> dict[str, dict[str, Any]]:
    """The pages of the set; none if one cannot be read, which `faults` says."""
    try:
        return (exports.read(Path(results)) if exported is None else exported).pages
    except exports.ExportError:
        return {}


def _twice(exported: exports.Exports) -> Iterator[str]:
    """Two chapters may not export different things under one name."""
    for kind in exports.KINDS:
        seen: dict[str, str] = {}
        for stem, page in exported.pages.items():
            for name in page[kind]:
                if seen.setdefault(name, stem) != stem:
                    yield f"{kind[:-1]} {name} is exported by {seen[name]} and by {stem}: rename it in one of the chapters"


def _page(results: Path, stem: str, page: Mapping[str, Any], found: records.Records) -> Iterator[str]:
    where, anew = f"exports/{stem}.json", remedy(results, page)
    if exports.seal(page) != page.get("fingerprint"):
        yield f"{where} was changed after its chapter wrote it: {anew}"
    executed = results / page["executed"]
    if not executed.is_file() or page["fingerprint"][: provenance.SHORT] not in executed.read_text(errors="replace"):
        yield f"{page['executed']} is not the execution that wrote {where}: {anew}"
    elif page.get(exports.EXECUTED, own := fingerprint.of_file(executed)) != own:
        yield f"{page['executed']} was changed after it was executed: {anew}"
    for name in exports.beside_runs(results, page["study"]):
        if name not in page["files"]:
            yield f"{where} does not know of {name}, which its chapter would read: {anew}"
    yield from _runs(results, where, page, anew, found)
    for name, own in page["files"].items():
        if not name.startswith(exports.PROFILE) and _is_other(exports.place(name, results), own):
            yield f"{where} rests on {name}, which has changed since or is gone: {anew}"
    for kind in exports.KINDS:
        for name, told in page[kind].items():
            for file, own in told["files"].items():
                if _is_other(results / file, own):
                    yield f"{file}, a file of the {kind[:-1]} {name}, has changed since its chapter wrote it, or is gone: {anew}"


def _runs(results: Path, where: str, page: Mapping[str, Any], anew: str, found: records.Records) -> Iterator[str]:
    for run, told in page["runs"].items():
        if not packed.is_run(results / "runs" / run):
            yield f"{where} rests on the run {run}, which is gone: {anew}"
        elif fingerprint.of_run(results / "runs" / run) != told["fingerprint"]:
            yield f"the records of the run {run} have changed since {where} was written: {anew}"
    try:
        now = records.load(results, study=page["study"]) if page["study"] else found
    except records.UnknownStudy as error:
        yield f"{where}: {error}"
        return
    if added := sorted(set(now.runs.run_id) - set(page["runs"])):
        yield f"{where} does not know of {len(added)} complete runs that its chapter would read, {added[0]} for one: {anew}"
    left = {run for run in page["runs"] if packed.is_run(results / "runs" / run)} - set(now.runs.run_id)
    if left := sorted(left - now.refused.keys() - now.unfinished.keys()):
        yield f"{where} rests on {len(left)} runs that its chapter would no longer read, {left[0]} for one: {anew}"
    for run in sorted(set(page["runs"]) & (now.refused.keys() | now.unfinished.keys())):
        why = now.refused.get(run) or f"it is {now.unfinished[run]}"
        yield f"{where} rests on the run {run}, which is not to be believed any more: {why}"


def _is_other(path: Path, own: str) -> bool:
    try:
        return fingerprint.of_file(path) != own
    except OSError:
        return True


def called(results: Path) -> str:
    """A set as commands take it: the name of a committed one, or its folder."""
    return results.name if results.absolute().parent == paths.reference() else str(results)


def remedy(results: Path, page: Mapping[str, Any]) -> str:
    """The command that executes the page's chapter once more, in words."""
    study = f" -p study={page['study']}" if page["study"] else ""
    return f"`hpc chapter {page['notebook']} --results {called(results)}{study}` executes it anew"


def _csv(results: Path, found: records.Records) -> Iterator[str]:
    """What `hpc collect` joined must be what the runs' folders say, in all columns that both know."""
    import pandas as pd

    joined = f"`hpc collect --results {called(results)}` joins them anew"
    tables = {"runs": found.runs} | ({} if (results / packed.RUNS).is_file() else {"epochs": found.epochs})
    for name, frame in tables.items():
        path = results / "csv" / f"{name}.csv"
        if not path.is_file():
            continue
        try:
            there = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as error:  # pandas' own are ValueErrors, as a wrong encoding is
            yield f"csv/{name}.csv cannot be read ({type(error).__name__}): {joined}"
            continue
        now = pd.read_csv(io.StringIO(frame.to_csv(index=False)), dtype=str, keep_default_na=False)
        both = [column for column in now.columns if column in there.columns]
        if foreign := [column for column in there.columns if column not in now.columns]:
            yield f"csv/{name}.csv has a column {foreign[0]!r}, which no run's folder fills: {joined}"
        if "run_id" not in both or len(now) != len(there):
            yield f"csv/{name}.csv holds {len(there)} rows and the runs' folders {len(now)}: {joined}"
            continue
        differs = (now[both].to_numpy() != there[both].to_numpy()).any(axis=1)
        if differs.any():
            yield (
                f"csv/{name}.csv says something else of {now.run_id[differs].iloc[0]} than the run's folder: {joined}"
            )
