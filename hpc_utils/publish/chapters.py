"""From a study's records to its figures and report: execute the reading chapters, bind them all."""

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

WRITTEN = ("notebooks", exports.FOLDER, *exports.KINDS)  # what executing a chapter changes in its set


def execute(notebook: Path, output: Path, **parameters: object) -> Path:
    """Execute a chapter that reads results, in this process; `output` keeps it with its pictures."""
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank: spares 0.7 s
    import papermill

    output.parent.mkdir(parents=True, exist_ok=True)
    papermill.execute_notebook(
        notebook, output, parameters, engine_name="hpc", kernel_name="python3", progress_bar=False
    )
    return output


class NamesLost(ValueError):
    """A chapter, executed again, no longer exports what it did; the message lists it."""

    exit_code = 2


def renew(notebook: Path, results: Path, *, study: str = "", drop: bool = False, **parameters: object) -> Path:
    """Execute a chapter on the result set `results`, where it lies: its figures, tables and values are written anew.

    The executed notebook, whose path is returned, keeps no path of this machine. `study`: "" for a chapter about the whole set.
    `drop`: names may go that it exported before.

    Raises:
        UnknownStudy: the set has no such study.
        NamesLost: names would go. Then, and if the chapter fails, the set is left as it was.
    """
    given = parameters | ({"study": study} if study else {})
    with paths.results_at(results):
        folder = paths.results()
        if study:
            records.read_study(study)
        output = folder / "notebooks" / study / notebook.name
        stem = f"{study}-{notebook.stem}" if study else notebook.stem
        before = _names(folder, stem)
        with _kept_if_it_fails(folder) if before else contextlib.nullcontext():
            _hand_on(notebook, output, given)
            if (lost := sorted(before - _names(folder, stem))) and not drop:
                listed = "".join(f"\n  {kind[:-1]} {name}" for kind, name in lost)
                raise NamesLost(
                    f"{notebook.stem} would no longer export {len(lost)} of {len(before)}; the set is unchanged. Something that the "
                    f"chapter reads may be missing: measurements, the example profiles (HPC_DATA_MIRROR). To drop them, `--drop`:{listed}"
                )
    return output


def _hand_on(notebook: Path, output: Path, parameters: Mapping[str, object]) -> None:
    execute(notebook, output, **parameters)
    atomic.write_text(output, portable(output.read_text()))
    exports.note_execution(paths.results(), output)


def _names(results: Path, stem: str) -> set[tuple[str, str]]:
    """(kind, name) of all that the page `stem` exports; none if there is no such page that can be read."""
    page = read_json(results / exports.FOLDER / f"{stem}.json")
    parts = {kind: page.get(kind) for kind in exports.KINDS} if isinstance(page, dict) else {}
    return {(kind, name) for kind, own in parts.items() if isinstance(own, dict) for name in own}


@contextlib.contextmanager
def _kept_if_it_fails(results: Path) -> Iterator[None]:
    """Whatever goes wrong in the block, `WRITTEN` is then as it was."""
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
                if Path(aside, name).is_dir():
                    Path(aside, name).rename(results / name)
            raise


def conclude(study_name: str, output: Path | None = None) -> Path:
    """Collect the records, write SYSTEM.md, execute the reading chapters and write `report/index.html` (or `output`).

    Returns the report's path. Runs whose records cannot be true are left out and named on stderr.
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
    """Write the report of a result set (its folder or name) from the chapters that lie there executed; returns its path.

    With `study_name` its chapters and runs alone.

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
        # One that was executed on all of a set's runs together lies above the studies' own.
        places = [(notebooks / study_name / name, notebooks / name) for name in names]
        chapters = [path for pair in places if (path := next(filter(Path.is_file, pair), None))]
    return _report(chapters, results, studies, study_name, output)


def _report(
    chapters: Sequence[Path],
    results: Path,
    studies: Sequence[StudyIndex],
    study_name: str | None,
    output: Path | None,
    found: records.Records | None = None,
) -> Path:
    from .evidence import gather
    from .report import write_report

    title = studies[0].title if len(studies) == 1 else f"Results: {results.name}"
    about = studies[0].about if len(studies) == 1 else "; ".join(study.title for study in studies)
    evidence = gather(results, chapters, study=study_name, found=found)
    own = None if study_name is None else studies[0].run_ids
    return write_report(
        chapters,
        output or results / "report" / "index.html",
        title=title,
        subtitle=about,
        facts=facts(evidence.found, own),
        evidence=evidence,
    )


def write_system(found: records.Records, results: Path) -> None:
    """SYSTEM.md: the machines, software and code behind the runs in `results`."""
    origins = [read_json(results / "runs" / name / "provenance.json") for name in found.runs.run_id]
    provenance.write_system(origins, results / "SYSTEM.md")


def _executed(chapter: ReportChapter, study: StudyIndex, complete: set[str]) -> Path | None:
    """The chapter with its outputs, `notebooks/<study>/<chapter>.ipynb`; None without a run to show.

    Either one run's own notebook, the first that matches, or one that is executed now on the records.
    """
    output = paths.results() / "notebooks" / study.name / f"{chapter.notebook}.ipynb"
    if chapter.run is None:
        print(f"executing {output.name}", file=sys.stderr, flush=True)
        _hand_on(paths.notebooks() / output.name, output, {"study": study.name})
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
    """What the report's head says about where its numbers come from; of the runs `own`, or of all."""
    runs = found.runs if own is None else found.runs[found.runs.run_id.isin(own)]
    refused = found.refused.keys() if own is None else found.refused.keys() & own
    if runs.empty:
        return {"runs": "none is complete"}
    commits = sorted(
        {
            f"{c[: provenance.SHORT]}{' (modified)' if d else ''}"
            for c, d in zip(runs.commit, runs.dirty, strict=True)
            if c
        }
    )
    return {
        "device": ", ".join(sorted(set(runs.device_name.dropna()))),
        "runs": f"{len(runs)} complete, {len(refused)} refused",
        "measured": f"{min(runs.started)[:16].replace('T', ' ')} to {max(runs.started)[:16].replace('T', ' ')} UTC",
        "commit": ", ".join(commits) or "not known",
        "code digest": ", ".join(sorted(set(runs.digest))),
        "torch": ", ".join(sorted(set(runs.torch.dropna()))),
    }
