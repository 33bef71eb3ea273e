"""Whether the exports of a result set still fit its records, files and code."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import paths, provenance, records
from hpc_utils.plural import counted
from hpc_utils.records import fingerprint
from hpc_utils.records.study import index_folder

from . import exports
from .exports import Exports
from .formatting import first_names

CLUSTERS = f"{exports.PROJECT}jobs/clusters/"


def faults(exported: Exports, run_records: records.Records) -> list[str]:
    """What is stale, changed by hand or missing in the set, of which `run_records` are all runs: one sentence each, with the remedy."""
    return [fault for stem in exported.pages for fault in page_faults(exported, stem, run_records)]


def page_faults(
    exported: Exports, stem: str, run_records: records.Records, runs: Collection[str] | None = None
) -> Iterator[str]:
    """`faults` of one page, `exports/<stem>.json`.

    Args:
        run_records: as of `faults`. runs: those whose code is compared with what is here; None: all of the page.

    A committed set is not compared with the cluster files, which are edited for other measurements.
    """
    folder = exported.folder
    page = exported.pages[stem]
    page_file = f"exports/{stem}.json"
    incomplete = ""

    def anew() -> str:
        return incomplete + remedy(folder, page)

    if _digest(folder / page["executed"]) != page.get(exports.EXECUTED, ""):
        yield f"{page['executed']} is not the execution that wrote {page_file}, or has changed since: {anew()}"
    if page["study"]:
        try:
            study = records.read_study(page["study"], folder)
        except records.UnknownStudy as error:
            yield f"{page_file}: {error}"
            return
        run_records = run_records.only(study.run_ids)
        if run_records.unfinished:
            unfinished = counted(len(run_records.unfinished), "run")
            incomplete = f"not complete: {unfinished} of {study.name} (`{study.command or 'hpc study run'}`); then "
    yield from records.by_former_code(run_records, folder, page["study"], runs)
    items = [item for kind in exports.KINDS for item in page[kind].values()]
    files = page["files"] | {name: digest for item in items for name, digest in item["files"].items()}
    outside = (exports.PROFILE, CLUSTERS) if (folder / paths.PACKED).is_file() else exports.PROFILE
    files = {name: digest for name, digest in files.items() if not name.startswith(outside)}
    page_digests = {run: entry["fingerprint"] for run, entry in page["runs"].items()} | files
    current_digests = {run: exported.fingerprint(run) for run in run_records.runs.run_id}
    for name in (*files, *exports.beside_runs(folder, page["study"])):
        current_digests[name] = _digest(exports.place(name, folder))
    if changed := [name for name, digest in page_digests.items() if current_digests.get(name) != digest]:
        yield f"{page_file} rests on what has changed since, is no longer valid or is gone: {first_names(changed)}: {anew()}"
    if added := [name for name in current_digests if name not in page_digests]:
        yield f"{page_file} does not know what its chapter would read: {first_names(added)}: {anew()}"


def computed_otherwise(exported: Exports) -> list[str]:
    """The pages computed by other code or cluster files than are here now: reading, analysis, drawing, or the chapter was
    edited. Their values may be the same. And the studies planned from another study file."""
    return [*_planned_otherwise(exported)] + [
        f"exports/{stem}.json was computed by other code than is here now (reading, analysis, drawing, the chapter or a "
        f"cluster file changed): {remedy(exported.folder, page)}"
        for stem, page in exported.pages.items()
        if page["analysis"] != provenance.analysis_digest(page["notebook"])[: provenance.SHORT]
        or any(
            _digest(exports.place(name, exported.folder)) != digest
            for name, digest in page["files"].items()
            if name.startswith(CLUSTERS)
        )
    ]


def _planned_otherwise(exported: Exports) -> Iterator[str]:
    """A committed set is not compared with the study files, which are edited for other measurements."""
    folder = exported.folder
    studies = {page["study"] for page in exported.pages.values()}
    for index in () if (folder / paths.PACKED).is_file() else records.studies(folder):
        planned = index.file and index_folder(index.name, folder) / index.file.name
        if index.name in studies and planned and planned.is_file() and planned.read_text() != index.file.read_text():
            yield f"{index.name} was planned from another {index.file.name} than is here now: `{index.command}` plans it anew"


def remedy(results: Path, page: Mapping[str, Any]) -> str:
    """The command that executes the page's chapter again, with its parameters."""
    parameters = {"study": page["study"]} if page["study"] else {}
    with contextlib.suppress(OSError, LookupError, ValueError):  # without its executed notebook, with the study alone
        notebook = json.loads((results / page["executed"]).read_text())
        parameters |= notebook["metadata"]["papermill"]["parameters"]
    given = [word for name, value in parameters.items() for word in ("-p", f"{name}={value}")]
    command = shlex.join(["hpc", "chapter", page["notebook"], "--results", _named(results), *given])
    return f"`{command}` executes it again"


def _named(results: Path) -> str:
    """A set as commands take it: its name if it is committed, or its folder."""
    return results.name if results.absolute().parent == paths.reference() else str(results)


def _digest(path: Path) -> str | None:
    try:
        return fingerprint.of_file(path)
    except OSError:
        return None
