"""What can be looked up in the report: the tables and figures of the chapters, and every run, each as a table with links."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hpc_utils.provenance import SHORT
from hpc_utils.publish import formatting
from hpc_utils.publish.address import relative
from hpc_utils.publish.evidence import Evidence
from hpc_utils.records import packed
from hpc_utils.records.folder import read_json

if TYPE_CHECKING:
    from hpc_utils.publish.exports import Item

ABSENT = "absent"  # the state of a run that a study asks for and that was never measured


@dataclass(frozen=True)
class Row:
    """Of a table."""

    anchor: str
    cells: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A section of the page. `hidden`: columns that are searched, and shown on demand."""

    anchor: str
    about: str
    columns: Sequence[str]
    rows: Sequence[Row]
    hidden: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Found:
    """All of it. `captions`: of figures, by name; `places`: the anchors of all rows."""

    faults: Sequence[str]
    tables: Sequence[Table]
    captions: Mapping[str, Markup]

    @property
    def places(self) -> frozenset[str]:
        return frozenset(row.anchor for table in self.tables for row in table.rows)


def of(evidence: Evidence, page: Path, chapters: Mapping[Path, str]) -> Found:
    """The evidence for the page in the file `page`; `chapters`: the anchors of its chapters, by their files."""
    links = Links(evidence, page, chapters)
    runs = _runs(evidence, links)
    own = [
        table
        for table in (_tables(evidence.exported.tables, links), _figures(evidence.exported.figures, links))
        if table.rows
    ]
    captions = {name: _caption(figure, links) for name, figure in evidence.exported.figures.items()}
    return Found(evidence.faults, [*own, runs], captions)


class Links:
    """Links from the page to files and to places in it; what they rest on."""

    def __init__(self, evidence: Evidence, page: Path, chapters: Mapping[Path, str]) -> None:
        self.results, self.page, self.chapters, self.exported = evidence.results, page, chapters, evidence.exported
        self.runs = {run: place for place, run in enumerate(_run_ids(evidence))}

    def file(self, name: str, text: str) -> str:
        """To a file of the result set, or to the one that it is packed in; only the text if there is none."""
        path = packed.holder(self.results / name)
        return Markup('<a href="{}">{}</a>').format(relative(path, self.page.parent), text) if path else text

    def behind(self, runs: Iterable[str], name: str) -> str:
        """`24 runs`, which shows these in the table of runs."""
        places = sorted(self.runs[run] for run in runs if run in self.runs)
        if not places:
            return ""
        link = Markup('<a href="#runs" data-runs="{}" data-name="{}">{} run{}</a>')
        return link.format(_spans(places), name, len(places), "s" * (len(places) != 1))

    def chapter(self, stem: str) -> str:
        """The chapter that wrote `exports/<stem>.json`, with its commit."""
        page = self.exported.pages[stem]
        executed, commit = self.results / page["executed"], page.get("commit")
        anchor = self.chapters.get(executed.resolve())
        chapter = Markup('<a href="#{}">{}</a>').format(anchor, stem) if anchor else self.file(page["executed"], stem)
        return Markup("{}, {}").format(chapter, _commit(commit, page.get("dirty")))


def _tables(exported: Mapping[str, Item], links: Links) -> Table:
    rows = [
        Row(
            f"table-{name}",
            [Markup("<b>{}</b>").format(name), one.caption, _quantities(one),
             links.behind(one.runs, name) or ", ".join(one.evidence), links.chapter(one.page), _files(one, links)],
        )
        for name, one in exported.items()
    ]  # fmt: skip
    about = "Each table that a chapter exports: a row for each configuration, with 95 % intervals and the runs behind them."
    columns = ["name", "what it shows", "quantities (unit)", "rests on", "chapter, commit", "files"]
    return Table("tables", about, columns, rows)


def _quantities(item: Item) -> str:
    """The columns that have a unit, without the ends of their intervals."""
    return ", ".join(
        f"{column} ({unit})"
        for column, unit in item.units.items()
        if unit not in ("", "text", "count") and not column.endswith(("_low", "_high"))
    )


def _figures(exported: Mapping[str, Item], links: Links) -> Table:
    rows = [
        Row(
            f"figure-{name}",
            [Markup("<b>{}</b>").format(name), one.caption, links.behind(one.runs, name), links.chapter(one.page),
             _files(one, links)],
        )
        for name, one in exported.items()
    ]  # fmt: skip
    about = "Each figure that a chapter exports, with the data that it shows."
    return Table("figures", about, ["name", "what it shows", "rests on", "chapter, commit", "files"], rows)


def _files(item: Item, links: Links) -> Markup:
    return Markup(", ").join(links.file(name, Path(name).suffix[1:].upper()) for name in item.files)


def _caption(figure: Item, links: Links) -> Markup:
    parts = (links.behind(figure.runs, figure.name), links.chapter(figure.page), _files(figure, links))
    source = Markup(", ").join(part for part in parts if part)
    name = Markup('<a href="#figure-{0}">{0}</a>').format(figure.name)
    return Markup('{} <span class="quiet">Figure {}: {}</span>').format(figure.caption, name, source)


def _runs(evidence: Evidence, links: Links) -> Table:
    """Every run, also those that are not complete."""
    complete = {run["run_id"]: run for run in evidence.found.runs.to_dict("records")}
    series, known, given = _series(evidence.results), [], []
    for run_id in links.runs:
        request = _request(evidence.results / "runs" / run_id)
        config = request.pop("config", None) or {}
        given.append({key: _text(value) for key, value in config.items() if value not in (None, {}, [])})
        own = complete.get(run_id) or {"state": _state(run_id, evidence)}
        known.append(given[-1] | request | own | {"series": ", ".join(series.get(run_id, ()))})
    same = {
        key: value
        for key, value in (given[0] if given else {}).items()
        if all(own.get(key) == value for own in given)
    }
    rows = [
        Row(
            f"run-{run_id}",
            [links.file(f"runs/{run_id}", run_id), *_cells(run),
             " ".join(f"{key}={value}" for key, value in own.items() if key not in same)],
        )
        for run_id, run, own in zip(links.runs, known, given, strict=True)
    ]  # fmt: skip
    states = [run["state"].partition(":")[0] for run in known]
    find = Markup('<a href="#runs" data-find="{1}">{0} {1}</a>')
    notes = (
        [Markup(", ").join(find.format(states.count(state), state) for state in sorted(set(states)))]
        if states
        else []
    )
    if same:
        notes.append(f"The same in all runs: {', '.join(f'{key}={value}' for key, value in same.items())}.")
    about = "Every run, whatever its state. Its name leads to its records. Search for any words, also parameters, as in lr=0.1."
    columns = ["run", *COLUMNS, "parameters"]
    empty = [place for place in range(len(columns)) if rows and not any(row.cells[place] for row in rows)]
    rows = [Row(row.anchor, [cell for place, cell in enumerate(row.cells) if place not in empty]) for row in rows]
    columns = [column for place, column in enumerate(columns) if place not in empty]
    return Table("runs", about, columns, rows, ["parameters"], notes)


COLUMNS = (
    "state", "series", "workload", "parallel", "ranks", "nodes x ranks", "precision", "batch", "samples/s", "seconds",
    "test accuracy", "energy (kJ)", "commit", "job", "host",
)  # fmt: skip


def _cells(run: Mapping[str, Any]) -> Iterator[str]:
    """A run in the columns `COLUMNS`."""
    text = {key: _text(value) for key, value in run.items()}.get
    yield from (text("state", ""), text("series", ""), " on ".join(filter(None, (text("workload"), text("dataset")))))
    yield from (text("parallel", ""), _number(run.get("world_size")))
    yield " x ".join(filter(None, (_number(run.get("nodes")), _number(run.get("ranks_per_node")))))
    yield from (text("precision", ""), _number(run.get("global_batch")))
    yield from (_number(run.get(key)) for key in ("throughput", "seconds", "test_accuracy"))
    yield _number(run.get("energy_joules"), 1e-3)
    yield from (text("commit", "")[:SHORT], text("job_id", ""), text("host", ""))


def _number(value: object, scale: float = 1) -> str:
    return formatting.number(value * scale) if isinstance(value, int | float) and value == value else ""


def _text(value: object) -> str:
    if value is None or value != value:
        return ""
    return value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else json.dumps(value)


def _run_ids(evidence: Evidence) -> list[str]:
    """In the order of the studies."""
    found = evidence.found
    ids = dict.fromkeys([*_series(evidence.results), *found.runs.run_id, *found.refused, *found.unfinished])
    return [run_id for run_id in ids if evidence.wanted is None or run_id in evidence.wanted]


def _series(results: Path) -> dict[str, list[str]]:
    """{run: its series in each study that asks for it, with the study's name where there are several}."""
    found: dict[str, list[str]] = {}
    studies = {path.stem: read_json(path) for path in sorted((results / "studies").glob("*.json"))}
    for study, index in studies.items():
        for run in (index or {}).get("runs", ()):
            series = run.get("series") or "run"
            found.setdefault(run["run_id"], []).append(f"{study}: {series}" if len(studies) > 1 else series)
    return found


def _state(run_id: str, evidence: Evidence) -> str:
    """Of a run that is not complete, with the reason."""
    if run_id in evidence.found.refused:
        return f"refused: {evidence.found.refused[run_id]}"
    reason = (read_json(evidence.results / "runs" / run_id / "status.json") or {}).get("reason")
    state = evidence.found.unfinished.get(run_id, ABSENT)
    return f"{state}: {reason}" if reason else state


def _request(folder: Path) -> dict[str, Any]:
    """What was asked of a run, also of one that is not complete."""
    for name in ("run.json", "request.json"):
        if isinstance(request := read_json(folder / name), dict):
            return request
    return {}


def _commit(commit: str | None, dirty: bool | None) -> str:
    return f"{commit[:SHORT]}{' (modified)' if dirty else ''}" if commit else "commit unknown"


def _spans(places: Iterable[int]) -> str:
    """`0-5,7`: sorted places."""
    spans: list[list[int]] = []
    for place in places:
        if spans and spans[-1][1] == place - 1:
            spans[-1][1] = place
        else:
            spans.append([place, place])
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in spans)
