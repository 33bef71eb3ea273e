"""Execute the chapters that read results, and write the report of a study or a result set."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpc_utils import paths, provenance, records, signals
from hpc_utils.records import atomic
from hpc_utils.records.fingerprint import portable
from hpc_utils.records.folder import read_json
from hpc_utils.records.study import ReportChapter, StudyIndex

from . import exports

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
        study: "" for a chapter about the whole set. drop: earlier exports may disappear.

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
        output = folder / "notebooks" / study / notebook.name
        before = _names(page)
        with _restored_on_failure(folder) if before else contextlib.nullcontext():
            _execute_here(notebook, output, parameters | ({"study": study} if study else {}))
            if (lost := sorted(before - _names(page))) and not drop:
                listed = "".join(f"\n  {kind[:-1]} {name}" for kind, name in lost)
                raise NamesLost(
                    f"{notebook.stem} would no longer export {len(lost)} of {len(before)}; the set is unchanged. Something that the "
                    f"chapter reads may be missing: measurements, the example profiles (HPC_DATA_MIRROR). To drop them, `--drop`:{listed}"
                )
    return output


def _execute_here(notebook: Path, output: Path, parameters: Mapping[str, object]) -> None:
    """Execute a chapter in the current result set, and note the execution in its exports."""
    execute(notebook, output, **parameters)
    atomic.write_text(output, portable(output.read_text()))
    exports.note_execution(paths.results(), output)


def _names(page: Path) -> set[tuple[str, str]]:
    """(kind, name) of all exports of a page; empty if there is no readable page."""
    content = read_json(page)
    parts = {kind: content.get(kind) for kind in exports.KINDS} if isinstance(content, dict) else {}
    return {(kind, name) for kind, own in parts.items() if isinstance(own, dict) for name in own}


@contextlib.contextmanager
def _restored_on_failure(results: Path) -> Iterator[None]:
    """If the block fails, restore the folders `WRITTEN`."""
    with tempfile.TemporaryDirectory(dir=results, prefix=".before-") as aside:
        kept = [name for name in WRITTEN if (results / name).is_dir()]
        for name in kept:
            shutil.copytree(results / name, Path(aside, name))
        try:
            with signals.interrupting():
                yield
        except BaseException:
            for name in WRITTEN:
                shutil.rmtree(results / name, ignore_errors=True)
            for name in kept:
                Path(aside, name).rename(results / name)
            raise


def conclude(study_name: str, output: Path | None = None) -> Path:
    """Collect the records, write SYSTEM.md, execute the reading chapters and write `report/index.html` (or `output`).

    Returns the report's path. Runs with invalid records are omitted and listed on stderr.
    """
    study = records.read_study(study_name)
    everything = records.collect()
    for name, why in everything.refused.items():
        print(f"refused {name}: {why}", file=sys.stderr)
    complete = set(everything.runs.run_id)
    chapters = [path for chapter in study.chapters if (path := _executed(chapter, study, complete))]
    everything = records.collect()  # a chapter may make runs, as 00_start_here does
    write_system(everything, paths.results())
    page = _report(chapters, paths.results(), [study], study_name, output, everything)
    print(f"figures: {paths.results() / 'figures'}\nreport:  {page}")
    return page


def bind(results: str | Path, study_name: str | None = None, output: Path | None = None) -> Path:
    """Write the report of a result set (its folder or name) from its executed chapters; returns its path.

    `study_name`: only chapters and runs of this study.

    Raises:
        UnknownStudy: the study was never run with these results.
        NoResultSet: there are no runs.
    """
    results = paths.result_set(results)
    notebooks = results / "notebooks"
    if study_name is None:
        studies = records.studies(results)
        chapters = sorted(notebooks.rglob("*.ipynb"), key=lambda path: (path.name, path))
    else:
        studies = [records.read_study(study_name, results)]
        names = [f"{chapter.notebook}.ipynb" for chapter in studies[0].chapters]
        # A chapter that was executed on all runs of the set is above the studies' own.
        places = [(notebooks / study_name / name, notebooks / name) for name in names]
        chapters = [path for pair in places if (path := next(filter(Path.is_file, pair), None))]
    return _report(chapters, results, studies, study_name, output)


def _report(
    chapters: Sequence[Path], results: Path, studies: Sequence[StudyIndex], study_name: str | None, output: Path | None,
    found: records.Records | None = None,
) -> Path:  # fmt: skip
    from .evidence import gather
    from .report import write_report

    (title, about), evidence = (
        (f"Results: {results.name}", ""),
        gather(results, chapters, study=study_name, found=found),
    )
    if len(studies) == 1:
        title, about = studies[0].title, studies[0].about
    return write_report(
        chapters,
        output or results / "report" / "index.html",
        title=title,
        subtitle=about or "; ".join(study.title for study in studies),
        facts=facts(evidence.found, None if study_name is None else studies[0].run_ids),
        evidence=evidence,
    )


def write_system(found: records.Records, results: Path) -> None:
    """SYSTEM.md: the machines, software and code behind the runs in `results`."""
    origins = [read_json(results / "runs" / name / "provenance.json") for name in found.runs.run_id]
    provenance.write_system(origins, results / "SYSTEM.md")


def _executed(chapter: ReportChapter, study: StudyIndex, complete: set[str]) -> Path | None:
    """`notebooks/<study>/<chapter>.ipynb`: the notebook of the first matching run, or executed now on the records; None without a
    matching run."""
    output = paths.results() / "notebooks" / study.name / f"{chapter.notebook}.ipynb"
    if chapter.run is None:
        print(f"executing {output.name}", file=sys.stderr, flush=True)
        _execute_here(paths.notebooks() / output.name, output, {"study": study.name})
        return output
    for run in study.runs:
        has = run.parameters | {"series": run.series, "ranks": run.ranks}
        kept = paths.runs() / run.run_id / "notebook.ipynb"
        matches = all(has.get(name) == value for name, value in chapter.run.items())
        if matches and run.run_id in complete and kept.exists():
            output.parent.mkdir(parents=True, exist_ok=True)
            return Path(shutil.copyfile(kept, output))
    return None


def facts(found: records.Records, own: set[str] | None = None) -> dict[str, str]:
    """The head of the report: where the numbers of the runs `own`, by default all, come from."""
    runs = found.runs if own is None else found.runs[found.runs.run_id.isin(own)]
    refused = found.refused.keys() if own is None else found.refused.keys() & own
    if runs.empty:
        return {"runs": "none is complete"}
    commits = zip(runs.commit, runs.dirty, strict=True)
    commits = {f"{commit[: provenance.SHORT]}{' (modified)' if dirty else ''}" for commit, dirty in commits if commit}
    first, last = (time[:16].replace("T", " ") for time in (min(runs.started), max(runs.started)))
    return {
        "device": ", ".join(sorted(set(runs.device_name.dropna()))),
        "runs": f"{len(runs)} complete, {len(refused)} refused",
        "measured": f"{first} to {last} UTC",
        "commit": ", ".join(sorted(commits)) or "not known",
        "code digest": ", ".join(sorted(set(runs.digest))),
        "torch": ", ".join(sorted(set(runs.torch.dropna()))),
    }
