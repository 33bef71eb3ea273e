"""Whether the exports of a result set still fit its records, files and figures."""

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
    """What is stale, changed by hand, missing or ambiguous in the set: one sentence each, with the remedy.

    Compared are `exports/`, the runs, probes and benches that they rest on, figures, tables, and `csv/`.
    `exported`, `found`: `exports.read` and `records.load` of the whole set, if they are already read.
    """
    results = Path(results)
    try:
        exported = exports.read(results) if exported is None else exported
    except exports.ExportError as error:
        return [str(error)]
    found = records.load(results) if found is None else found
    lines = [line for stem, page in exported.pages.items() for line in _page(results, stem, page, found)]
    return [*_twice(exported), *lines, *_csv(results, found)]


def faults_of(results: Path, stem: str) -> list[str]:
    """`faults` of one page, `exports/<stem>.json`."""
    return list(_page(results, stem, exports.read(results).pages[stem], records.load(results)))


def untraceable(results: Path) -> list[str]:
    """The pages that uncommitted code wrote, or that do not hold the digest of their notebook."""
    found = []
    for stem, page in _pages(results).items():
        if page.get("dirty") is not False:
            found.append(f"exports/{stem}.json was written by uncommitted code: commit, then {remedy(results, page)}")
        elif not page.get(exports.EXECUTED):
            found.append(
                f"exports/{stem}.json holds no digest of the notebook that wrote it: {remedy(results, page)}"
            )
    return found


def computed_otherwise(results: Path, exported: exports.Exports | None = None) -> list[str]:
    """The pages computed by other code than is here now: reading, analysis, drawing, or the chapter was edited. Their values may
    be the same."""
    return [
        f"exports/{stem}.json was computed by other code than is here now (reading, analysis, drawing or the chapter changed): "
        f"{remedy(results, page)}"
        for stem, page in _pages(results, exported).items()
        if page.get("analysis") != provenance.analysis_digest(page["notebook"])[: provenance.SHORT]
    ]


def _pages(results: Path, exported: exports.Exports | None = None) -> dict[str, dict[str, Any]]:
    """The pages of the set; none if one cannot be read, which `faults` reports."""
    try:
        return (exports.read(Path(results)) if exported is None else exported).pages
    except exports.ExportError:
        return {}


def _twice(exported: exports.Exports) -> Iterator[str]:
    """Names that two chapters export."""
    for kind in exports.KINDS:
        seen: dict[str, str] = {}
        for stem, page in exported.pages.items():
            for name in page[kind]:
                if seen.setdefault(name, stem) != stem:
                    yield f"{kind[:-1]} {name} is exported by {seen[name]} and by {stem}: rename it in one of the chapters"


def _page(results: Path, stem: str, page: Mapping[str, Any], found: records.Records) -> Iterator[str]:
    where, anew, executed = f"exports/{stem}.json", remedy(results, page), results / page["executed"]
    if exports.seal(page) != page["fingerprint"]:
        yield f"{where} was changed after its chapter wrote it: {anew}"
    if not executed.is_file() or page["fingerprint"][: provenance.SHORT] not in executed.read_text(errors="replace"):
        yield f"{page['executed']} is not the execution that wrote {where}: {anew}"
    elif _differs(executed, page.get(exports.EXECUTED)):
        yield f"{page['executed']} was changed after it was executed: {anew}"
    for name in exports.beside_runs(results, page["study"]):
        if name not in page["files"]:
            yield f"{where} does not know of {name}, which its chapter would read: {anew}"
    yield from _runs(results, where, page, anew, found)
    for name, own in page["files"].items():
        if not name.startswith(exports.PROFILE) and _differs(exports.place(name, results), own):
            yield f"{where} rests on {name}, which has changed since or is gone: {anew}"
    for kind in exports.KINDS:
        for name, item in page[kind].items():
            for file, own in item["files"].items():
                if _differs(results / file, own):
                    yield f"{file}, a file of the {kind[:-1]} {name}, has changed since its chapter wrote it, or is gone: {anew}"


def _runs(results: Path, where: str, page: Mapping[str, Any], anew: str, found: records.Records) -> Iterator[str]:
    there = {run for run in page["runs"] if packed.is_run(results / "runs" / run)}
    for run, own in page["runs"].items():
        if run not in there:
            yield f"{where} rests on the run {run}, which is gone: {anew}"
        elif fingerprint.of_run(results / "runs" / run) != own["fingerprint"]:
            yield f"the records of the run {run} have changed since {where} was written: {anew}"
    try:
        now = records.load(results, study=page["study"]) if page["study"] else found
    except records.UnknownStudy as error:
        yield f"{where}: {error}"
        return
    invalid = now.refused | {run: f"it is {state}" for run, state in now.unfinished.items()}
    if added := sorted(set(now.runs.run_id) - set(page["runs"])):
        yield f"{where} does not know of {len(added)} complete runs that its chapter would read, for example {added[0]}: {anew}"
    if left := sorted(there - set(now.runs.run_id) - invalid.keys()):
        yield f"{where} rests on {len(left)} runs that its chapter would no longer read, for example {left[0]}: {anew}"
    for run in sorted(set(page["runs"]) & invalid.keys()):
        yield f"{where} rests on the run {run}, which is no longer valid: {invalid[run]}"


def _differs(path: Path, own: str | None) -> bool:
    try:
        return own is not None and fingerprint.of_file(path) != own
    except OSError:
        return True


def called(results: Path) -> str:
    """A set as commands take it: its name if it is committed, or its folder."""
    return results.name if results.absolute().parent == paths.reference() else str(results)


def remedy(results: Path, page: Mapping[str, Any]) -> str:
    """The command that executes the page's chapter again."""
    study = f" -p study={page['study']}" if page["study"] else ""
    return f"`hpc chapter {page['notebook']} --results {called(results)}{study}` executes it again"


def _csv(results: Path, found: records.Records) -> Iterator[str]:
    """Compares the tables of `hpc collect` with the runs' folders, in all common columns."""
    import pandas as pd

    anew = f"`hpc collect --results {called(results)}` writes it again"
    tables = {"runs": found.runs} | ({} if (results / packed.RUNS).is_file() else {"epochs": found.epochs})
    for name, frame in tables.items():
        path = results / "csv" / f"{name}.csv"
        if not path.is_file():
            continue
        try:
            there = pd.read_csv(path, dtype=str, keep_default_na=False)
        except (OSError, ValueError) as error:
            yield f"csv/{name}.csv cannot be read ({type(error).__name__}): {anew}"
            continue
        now = pd.read_csv(io.StringIO(frame.to_csv(index=False)), dtype=str, keep_default_na=False)
        both = [column for column in now.columns if column in there.columns]
        if foreign := [column for column in there.columns if column not in now.columns]:
            yield f"csv/{name}.csv has a column {foreign[0]!r}, which no run's folder fills: {anew}"
        if "run_id" not in both or len(now) != len(there):
            yield f"csv/{name}.csv holds {len(there)} rows and the runs' folders {len(now)}: {anew}"
        elif (differs := (now[both].to_numpy() != there[both].to_numpy()).any(axis=1)).any():
            yield f"csv/{name}.csv differs from the folder of {now.run_id[differs].iloc[0]}: {anew}"
