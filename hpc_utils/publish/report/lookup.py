"""What can be looked up in the report: tables and figures of the chapters, and every run, with links to their
files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from hpc_utils import records
from hpc_utils.config import RunConfig
from hpc_utils.plural import counted
from hpc_utils.provenance import SHORT
from hpc_utils.publish import staleness
from hpc_utils.publish.address import relative
from hpc_utils.publish.exports import Exports, Item
from hpc_utils.publish.formatting import number
from hpc_utils.records import packed
from hpc_utils.records.folder import read_json
from hpc_utils.records.study import StudyIndex

COLUMNS = {  # of the runs, by the names of `records`
    "state": "state", "series": "series", "workload": "workload", "dataset": "data set", "parallel": "parallel",
    "world_size": "ranks", "nodes": "nodes", "precision": "precision", "global_batch": "batch", "throughput": "samples/s",
    "seconds": "seconds", "test_accuracy": "test accuracy", "energy_joules": "energy (J)", "commit": "commit", "job_id": "job",
    "host": "host",
}  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """The records, the exports and what is stale of a result set, or of one of its studies.

    Attributes:
        record_set: all runs of the set. chapters: executed notebooks. series: {run to show: its series}, in the
            studies' order.
    """

    results: Path
    record_set: records.Records
    exported: Exports
    studies: Sequence[StudyIndex]
    chapters: Sequence[Path]
    faults: Sequence[str]
    series: Mapping[str, str]

    @property
    def failed(self) -> list[tuple[str, str]]:
        """The runs that failed, each with the reason."""
        runs = [run for run in self.series if self.record_set.unfinished.get(run) == "failed"]
        return [(run, _state(run, self).partition("\n")[0]) for run in runs]


def gather(results: Path, record_set: records.Records, exported: Exports, study: str = "") -> Evidence:
    """The evidence, of all runs and exports of the set; of a study its runs, its executed chapters, what they
    exported, and the runs behind that; of a set of several studies not their chapters, but those on all runs.

    Raises:
        UnknownStudy: no such study, or a damaged one.
    """
    folder = results / "notebooks"
    studies = [records.read_study(study, results)] if study else records.studies(results)
    several = len(studies) > 1
    if study:
        names = [f"{chapter.notebook}.ipynb" for chapter in studies[0].chapters]
        names += sorted({path.name for path in (folder / study).glob("*.ipynb")} - {*names})  # by `hpc chapter`
        # A chapter that was executed on all runs of the set is above the studies' own.
        places = [(folder / study / name, folder / name) for name in names]
        chapters = [path for pair in places if (path := next(filter(Path.is_file, pair), None))]
    else:
        chapters = sorted(folder.glob("*.ipynb" if several else "**/*.ipynb"), key=lambda path: (path.name, path))
    if study or several:
        pages = {name: page for name, page in exported.pages.items() if results / page["executed"] in chapters}
        tables, figures = (
            {name: item for name, item in items.items() if item.page in pages}
            for items in (exported.tables, exported.figures)
        )
        exported = replace(exported, pages=pages, tables=tables, figures=figures)
    series: dict[str, list[str]] = {}
    for index in studies:
        for run in index.runs:
            series.setdefault(run.run_id, []).append(f"{index.name}: {run.series}" if several else run.series)
    behind = (run for page in exported.pages.values() for run in page["runs"])
    for run in behind if study else (*record_set.runs.run_id, *record_set.refused, *record_set.unfinished):
        series.setdefault(run, [])
    faults = records.by_former_code(record_set, results, study)
    faults += staleness.faults(exported, record_set) + staleness.computed_otherwise(exported)
    joined = {run: ", ".join(names) for run, names in series.items()}
    return Evidence(results, record_set, exported, studies, chapters, list(dict.fromkeys(faults)), joined)


class Lookup:
    """What the page in the file `page` lists.

    Args:
        chapters: {executed notebook: its anchor}.

    Attributes:
        tables: {section: {anchor: {column: cell}}} of tables, figures and runs; a section without rows is omitted.
        captions: {figure: its caption}. states: {state: number of runs}.
    """

    def __init__(self, evidence: Evidence, page: Path, chapters: Mapping[Path, str]) -> None:
        self.evidence = evidence
        self.page = page
        self.chapters = chapters
        self.places = {run: place for place, run in enumerate(evidence.series)}
        self.states: Counter[str] = Counter()
        tables, figures = evidence.exported.tables, evidence.exported.figures
        self.captions = {name: self._caption(figure) for name, figure in figures.items()}
        sections = {
            "tables": {f"table-{name}": self._item(item) for name, item in tables.items()},
            "figures": {f"figure-{name}": self._item(item) for name, item in figures.items()},
            "runs": self._runs(),
        }
        self.tables = {section: rows for section, rows in sections.items() if rows}

    def _file(self, name: str, text: str) -> str:
        """A link to a file of the result set, or to the one that it is packed in; plain text if there is none."""
        path = packed.holder(self.evidence.results / name)
        return Markup('<a href="{}">{}</a>').format(relative(path, self.page.parent), text) if path else text

    def _item(self, item: Item) -> dict[str, str]:
        labels = (f"{name} ({unit})" for name, unit in item.quantities.items() if unit not in ("text", "count"))
        quantities = {"quantities (unit)": ", ".join(labels)} if item.units else {}
        cells = {"name": Markup("<b>{}</b>").format(item.name), "what it shows": item.caption}
        return cells | quantities | self._source(item)

    def _source(self, item: Item) -> dict[str, str]:
        """Runs (a link that shows them in their table), chapter with its commit, and files."""
        places = sorted(self.places[run] for run in item.runs if run in self.places)
        link = Markup('<a href="#runs" data-runs="{}" data-name="{}">{}</a>')
        runs = link.format(",".join(map(str, places)), item.name, counted(len(places), "run"))
        page = self.evidence.exported.pages[item.page]
        anchor = self.chapters.get(self.evidence.results / page["executed"], "top")
        commit = f"{(page['commit'] or 'unknown')[:SHORT]}{' (modified)' if page['dirty'] else ''}"
        return {
            "rests on": runs if places else ", ".join(item.evidence),
            "chapter, commit": Markup('<a href="#{}">{}</a>, {}').format(anchor, item.page, commit),
            "files": Markup(", ").join((self._file(item.file, Path(item.file).suffix[1:].upper()), *_download(item))),
        }

    def _caption(self, figure: Item) -> Markup:
        source = Markup(", ").join(filter(None, self._source(figure).values()))
        name = Markup('<a href="#figure-{0}">{0}</a>').format(figure.name)
        return Markup('{} <span class="quiet">Figure {}: {}</span>').format(figure.caption, name, source)

    def _runs(self) -> dict[str, dict[str, str]]:
        """Every run, whatever its state; columns that are empty for all runs are omitted."""
        complete = {run["run_id"]: run for run in self.evidence.record_set.runs.to_dict("records")}
        defaults = RunConfig().model_dump()
        rows = {}
        for run, series in self.evidence.series.items():
            folder = self.evidence.results / "runs" / run
            request = read_json(folder / "run.json") or read_json(folder / "request.json") or {}
            config = request.get("config") or {}
            values = config | (complete.get(run) or {"state": _state(run, self.evidence)}) | {"series": series}
            values["commit"] = _text(values.get("commit"))[:SHORT]
            self.states[values["state"].partition(":")[0]] += 1
            row = {title: _text(values.get(name)) for name, title in COLUMNS.items()}
            chosen = " ".join(f"{name}={value}" for name, value in config.items() if value != defaults.get(name))
            rows[f"run-{run}"] = {"run": self._file(f"runs/{run}", run)} | row | {"parameters": chosen}
        for column in COLUMNS.values():
            if not any(row[column] for row in rows.values()):
                for row in rows.values():
                    del row[column]
        return rows


def _download(figure: Item) -> list[str]:
    """A link that saves the rows that a figure shows."""
    link = Markup('<a href="data:text/csv,{}" download="{}.csv">CSV</a>')
    return [link.format(quote(figure.data), figure.name)] if figure.data else []


def _text(value: Any) -> str:
    if value is None or value != value:
        return ""
    return value if isinstance(value, str) else number(value)


def _state(run: str, evidence: Evidence) -> str:
    """The state of a run that is not complete, with the reason."""
    if run in evidence.record_set.refused:
        return f"refused: {evidence.record_set.refused[run]}"
    reason = (read_json(evidence.results / "runs" / run / "status.json") or {}).get("reason")
    state = evidence.record_set.unfinished.get(run, "absent")
    return f"{state}: {reason}" if reason else state
