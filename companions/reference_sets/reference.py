"""Committed result sets: `results/reference/<hardware>/`, laid out like `results/`, their runs packed."""

from __future__ import annotations

import csv
import gzip
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpc_utils import paths, records
from hpc_utils.publish import exports
from hpc_utils.publish.chapters import renew, write_system
from hpc_utils.records import atomic, packed
from hpc_utils.records.fingerprint import portable
from hpc_utils.records.folder import PROFILE, read_json
from hpc_utils.records.study import index_folder

RECORDS = (
    *packed.DOCUMENTS,
    *packed.TABLES,
    # Of profiles the small ones that hold no environment, as nsys' and ncu's own files do.
    "monitor/*.csv", "sacct.csv", "profile/*.csv", "profile/*.trace.json.gz",
)  # fmt: skip
BENCH = "bench"  # where `make bench` leaves its tables
OF_ONE_STUDY = ("00_start_here", "06_paper_figures")  # other chapters read all runs of the set
SMALL = 2**20  # bytes


class CannotKeep(ValueError):
    """A study cannot be kept."""

    exit_code = 2


def keep(studies: Sequence[str], name: str) -> Path:
    """Copy the complete runs of `studies` to `results/reference/<name>/`, with the probes and benches of the same hardware.

    A single study also brings its executed chapters with their exports. The chapters `together` of the studies are executed
    anew on the whole set. The set contains no path of this machine, and its runs are packed (`records.packed`). Returns the folder.

    Raises:
        CannotKeep: a study is not complete, or has runs with contradictory records.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise CannotKeep(f"{name!r} is no folder's name: use letters, digits, dots and dashes")
    target = paths.reference() / name
    if target.resolve() == paths.results().resolve():
        raise CannotKeep(f"{target} holds these runs already: `--results` names the set to copy from")
    runs_by_study = {}
    for study in studies:
        study_records = records.load(study=study)
        incomplete_runs = study_records.refused | study_records.unfinished
        if study_records.runs.empty or incomplete_runs:
            raise CannotKeep(f"study {study!r} is not complete: {', '.join(incomplete_runs) or 'it has no runs'}")
        runs_by_study[study] = study_records.runs
    for study, runs in runs_by_study.items():
        _keep_runs(study, runs.run_id, target)
    _keep_probes({machine for runs in runs_by_study.values() for machine in runs.hardware_id}, target)
    anew = together(runs_by_study)
    if len(runs_by_study) == 1:
        _keep_chapters(*runs_by_study, target, anew)
    packed.pack(target)
    write_system(records.collect(target), target)
    for chapter in anew:
        renew(paths.notebooks() / f"{chapter}.ipynb", target)
    return target


def _keep_runs(study: str, runs: Iterable[str], target: Path) -> None:
    for run in runs:
        folder = paths.runs() / run
        for file in (path for pattern in RECORDS for path in sorted(folder.glob(pattern))):
            if file.parent == folder or file.stat().st_size <= SMALL:
                _copy(file, target / "runs" / run / file.relative_to(folder))
    _copy(records.study_index(study), target / "studies" / f"{study}.json")
    folder = index_folder(study)
    for file in filter(Path.is_file, folder.rglob("*")):
        _copy(file, target / "studies" / study / file.relative_to(folder))


def _keep_probes(hardware: set[str], target: Path) -> None:
    """The probes and benches of this hardware."""
    source = paths.results()
    facts = {file: read_json(file) or {} for file in source.glob("probes/*/*.json")}
    for file in source.glob(f"{BENCH}/*.csv"):  # not the smoke runs' below
        facts[file] = next(csv.DictReader(file.read_text().splitlines()), {})
    for file, row in facts.items():
        hardware_id = row.get("hardware_id") or "unknown"
        # A cluster's name may precede the machine's, and a manual limit of its links may follow it.
        if any(machine.endswith(hardware_id) or hardware_id.startswith(f"{machine}-") for machine in hardware):
            _copy(file, target / file.relative_to(source))


def _keep_chapters(study: str, target: Path, anew: Iterable[str]) -> None:
    """The study's chapters that are not executed `anew`, and their exports."""
    source = paths.results()
    names = [
        path.relative_to(source).as_posix()
        for path in (source / "notebooks" / study).glob("*.ipynb")
        if path.stem not in anew
    ]
    for stem, page in exports.read_exports(source).pages.items():
        if page["study"] == study and page["notebook"] not in anew:
            items = (item for kind in exports.KINDS for item in page[kind].values())
            names += [f"{exports.FOLDER}/{stem}.json", *(file for item in items for file in item["files"])]
    for name in names:
        _copy(source / name, target / name)


def together(studies: Iterable[str], results: Path | None = None) -> list[str]:
    """The chapters of these studies that read all runs of a set."""
    chapters = (chapter for study in studies for chapter in records.read_study(study, results).chapters)
    return sorted({chapter.notebook for chapter in chapters if chapter.run is None} - {*OF_ONE_STUDY})


def _copy(source: Path, target: Path) -> None:
    """Copy a file; text without paths of this machine."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in (".json", ".ipynb", ".toml") or (
        source.parent.name in (PROFILE, BENCH) and source.suffix == ".csv"
    ):
        atomic.write_text(target, portable(source.read_text()))
    elif source.name.endswith(".json.gz"):
        text = portable(gzip.decompress(source.read_bytes()).decode())
        atomic.write_file(target, lambda file: file.write(gzip.compress(text.encode(), mtime=0)))
    else:
        shutil.copyfile(source, target)
