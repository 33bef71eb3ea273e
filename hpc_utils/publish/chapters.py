"""Execute the chapters that read results, on a result set or for the report of a study."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import file_lock, paths, provenance, records, signals
from hpc_utils.records import atomic
from hpc_utils.records.fingerprint import portable
from hpc_utils.records.folder import read_json
from hpc_utils.records.study import StudyRun

from . import exports
from .report import bind

WRITTEN = ("notebooks", exports.FOLDER, *exports.KINDS)  # folders of the set that a chapter writes


def execute(notebook: Path, output: Path, **parameters: object) -> Path:
    """Execute a chapter in this process, and write it with its outputs to `output`."""
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank: spares 0.7 s
    import papermill

    output.parent.mkdir(parents=True, exist_ok=True)
    papermill.execute_notebook(
        notebook, output, parameters, engine_name="hpc", kernel_name="python3", progress_bar=False
    )
    return output


class NamesLost(ValueError):
    """A repeated chapter no longer exports everything; the message lists the missing exports."""

    exit_code = 2


def renew(notebook: Path, results: Path, *, study: str = "", drop: bool = False, **parameters: object) -> Path:
    """Execute a chapter on the result set `results` in place: its figures and tables are replaced.

    Args:
        study: "" for a chapter about the whole set. drop: earlier exports may disappear, with their files.

    Returns:
        The executed notebook, which holds no path of this machine.

    Raises:
        UnknownStudy: the set has no such study.
        NamesLost: exports would disappear. Then, and if the chapter fails, the set stays as it was.
    """
    with paths.results_at(results):
        folder = paths.results()
        if study:
            records.read_study(study)
        page = folder / exports.FOLDER / f"{'-'.join(filter(None, (study, notebook.stem)))}.json"
        before = _names(page)
        with _restored_on_failure(folder):
            output = _execute_here(notebook, study, **parameters)
            lost = sorted(before - _names(page))
            if lost and not drop:
                raise NamesLost(
                    f"{notebook.stem} would no longer export {', '.join(lost)}; the set is unchanged. Something that the chapter "
                    "reads may be missing: measurements, the example profiles (HPC_DATA_MIRROR). `--drop` drops them"
                )
            for kind, name in map(str.split, lost):
                for path in (folder / f"{kind}s").glob(f"{name}.*"):
                    path.unlink()
    return output


def renew_all(sets: Iterable[Path], *, drop: bool = False) -> Iterator[Path]:
    """`renew` every chapter that was executed on these result sets, one after the other."""
    for results in sets:
        for page in exports.read_exports(results).pages.values():
            yield renew(paths.notebooks() / f"{page['notebook']}.ipynb", results, study=page["study"], drop=drop)


def _execute_here(notebook: Path, study: str, **parameters: object) -> Path:
    """Execute a chapter in the current result set, and note the execution in its exports."""
    if study:
        parameters["study"] = study
    output = execute(notebook, paths.results() / "notebooks" / study / notebook.name, **parameters)
    atomic.write_text(output, portable(output.read_text()))
    exports.note_execution(paths.results(), output)
    return output


def _names(page: Path) -> set[str]:
    """`table NAME` and `figure NAME` of all exports of a page; none if it cannot be read."""
    content = read_json(page) or {}
    return {f"{kind[:-1]} {name}" for kind in exports.KINDS for name in content.get(kind, ())}


@contextlib.contextmanager
def _restored_on_failure(results: Path) -> Iterator[None]:
    """If the block fails, restore the folders `WRITTEN`."""
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=results, prefix=".before-") as aside:
        for name in WRITTEN:
            if (results / name).is_dir():
                shutil.copytree(results / name, Path(aside, name))
        try:
            with signals.interrupting():
                yield
        except BaseException:
            for name in WRITTEN:
                shutil.rmtree(results / name, ignore_errors=True)
            for copy in Path(aside).iterdir():
                copy.rename(results / copy.name)
            raise


def conclude(study_name: str, output: Path | None = None) -> Path:
    """Collect the records, write SYSTEM.md, execute the chapters of a study and write its report; returns the report's path.
    One process at a time does so.

    Runs with invalid records are omitted and listed on stderr. Without a complete run no chapter is executed.
    """
    study = records.read_study(study_name)
    with file_lock.hold(paths.results() / ".report.lock"):
        run_records = records.load(study=study.name)
        refused = (f"refused {name}: {why}" for name, why in run_records.refused.items())
        for line in (*refused, *records.by_absent_code(run_records, paths.results())):
            print(line, file=sys.stderr)
        complete = run_records.runs.run_id.tolist()
        for chapter in study.chapters if complete else ():
            if chapter.run is None:
                print(f"executing {chapter.notebook}", file=sys.stderr, flush=True)
                _execute_here(paths.notebooks() / f"{chapter.notebook}.ipynb", study.name)
            elif executed := _executed(chapter.run, study.runs, complete):
                copy = paths.results() / "notebooks" / study.name / f"{chapter.notebook}.ipynb"
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(executed, copy)
        write_system(records.collect(), paths.results())  # a chapter may make runs, as 00_start_here does
        page = bind(paths.results(), study.name, output)
        if left := len(study.run_ids) - len(complete):
            print(f"{left} of {len(study.run_ids)} runs are not complete", file=sys.stderr)
        print(f"figures: {paths.results() / 'figures'}\nreport:  {page}")
        return page


def _executed(wanted: Mapping[str, Any], runs: Iterable[StudyRun], complete: Collection[str]) -> Path | None:
    """The notebook of the first complete run that has the wanted parameters."""
    for run in runs:
        has = run.parameters | {"series": run.series, "ranks": run.ranks}
        notebook = paths.runs() / run.run_id / "notebook.ipynb"
        if run.run_id in complete and wanted.items() <= has.items() and notebook.exists():
            return notebook
    return None


def write_system(run_records: records.Records, results: Path) -> None:
    """SYSTEM.md: the machines, software and code behind the runs in `results`."""
    origins = [read_json(results / "runs" / name / "provenance.json") for name in run_records.runs.run_id]
    provenance.write_system(origins, results / "SYSTEM.md")
