"""Tables of the report with links: the tables and figures of the chapters, and every run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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

ABSENT = "absent"  # the state of a run of a study that was never measured


@dataclass(frozen=True)
class Row:
    """A row of a table."""

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
    """All tables. `captions`: of figures, by name; `places`: the anchors of all rows."""

    faults: Sequence[str]
    tables: Sequence[Table]
    captions: Mapping[str, Markup]

    @property
    def places(self) -> frozenset[str]:
        return frozenset(row.anchor for table in self.tables for row in table.rows)


def of(evidence: Evidence, page: Path, chapters: Mapping[Path, str]) -> Found:
    """The tables for the page in the file `page`; `chapters`: {executed notebook: its anchor}."""
    links, exported = Links(evidence, page, chapters), evidence.exported
    about = "Each table that a chapter exports: a row for each configuration, with 95 % intervals and the runs behind them."
    tables = [_exported("table", about, exported.tables, links)]
    tables.append(
        _exported(
            "figure", "Each figure that a chapter exports, with the data that it shows.", exported.figures, links
        )
    )
    captions = {name: _caption(figure, links) for name, figure in exported.figures.items()}
    return Found(evidence.faults, [*(table for table in tables if table.rows), _runs(evidence, links)], captions)


class Links:
    """Links from the page to files, runs and chapters."""

    def __init__(self, evidence: Evidence, page: Path, chapters: Mapping[Path, str]) -> None:
        self.results, self.page, self.chapters, self.exported = evidence.results, page, chapters, evidence.exported
        self.series = _series(evidence.results)
        found = evidence.found
        ids = dict.fromkeys(
            [*self.series, *found.runs.run_id, *found.refused, *found.unfinished]
        )  # in the studies' order
        ids = [run for run in ids if evidence.wanted is None or run in evidence.wanted]
        self.runs = {run: place for place, run in enumerate(ids)}

    def file(self, name: str, text: str) -> str:
        """To a file of the result set, or to the one that it is packed in; plain text if there is none."""
        path = packed.holder(self.results / name)
        return Markup('<a href="{}">{}</a>').format(relative(path, self.page.parent), text) if path else text

    def files(self, item: Item) -> Markup:
        return Markup(", ").join(self.file(name, Path(name).suffix[1:].upper()) for name in item.files)

    def behind(self, runs: Iterable[str], name: str) -> str:
        """`24 runs`, which shows these in the table of runs."""
        places = sorted(self.runs[run] for run in runs if run in self.runs)
        if not places:
            return ""
        link = Markup('<a href="#runs" data-runs="{}" data-name="{}">{} run{}</a>')
        return link.format(",".join(map(str, places)), name, len(places), "s" * (len(places) != 1))

    def chapter(self, stem: str) -> str:
        """The chapter that wrote `exports/<stem>.json`, with its commit."""
        page = self.exported.pages[stem]
        anchor = self.chapters.get((self.results / page["executed"]).resolve())
        chapter = Markup('<a href="#{}">{}</a>').format(anchor, stem) if anchor else self.file(page["executed"], stem)
        commit = (
            f"{page['commit'][:SHORT]}{' (modified)' if page.get('dirty') else ''}"
            if page.get("commit")
            else "commit unknown"
        )
        return Markup("{}, {}").format(chapter, commit)


def _exported(kind: str, about: str, items: Mapping[str, Item], links: Links) -> Table:
    columns: dict[str, Callable[[Item], str]] = {
        "name": lambda one: Markup("<b>{}</b>").format(one.name),
        "what it shows": lambda one: one.caption,
        "quantities (unit)": _quantities,
        "rests on": lambda one: links.behind(one.runs, one.name) or ", ".join(one.evidence),
        "chapter, commit": lambda one: links.chapter(one.page),
        "files": links.files,
    }
    if kind == "figure":
        del columns["quantities (unit)"]
    rows = [Row(f"{kind}-{name}", [write(one) for write in columns.values()]) for name, one in items.items()]
    return Table(f"{kind}s", about, list(columns), rows)


def _quantities(item: Item) -> str:
    """The columns that have a unit, without the ends of their intervals."""
    units = ((column, unit) for column, unit in item.units.items() if not column.endswith(("_low", "_high")))
    return ", ".join(f"{column} ({unit})" for column, unit in units if unit not in ("", "text", "count"))


def _caption(figure: Item, links: Links) -> Markup:
    parts = (links.behind(figure.runs, figure.name), links.chapter(figure.page), links.files(figure))
    name = Markup('<a href="#figure-{0}">{0}</a>').format(figure.name)
    source = Markup(", ").join(filter(None, parts))
    return Markup('{} <span class="quiet">Figure {}: {}</span>').format(figure.caption, name, source)


def _text(key: str) -> Callable[[Mapping], str]:
    return lambda run: _plain(run.get(key))


def _number(key: str, scale: float = 1) -> Callable[[Mapping], str]:
    def write(run: Mapping) -> str:
        value = run.get(key)
        return formatting.number(value * scale) if isinstance(value, int | float) and value == value else ""

    return write


def _joined(join: str, *writers: Callable[[Mapping], str]) -> Callable[[Mapping], str]:
    return lambda run: join.join(filter(None, (write(run) for write in writers)))


COLUMNS: dict[str, Callable[[Mapping], str]] = {
    "state": _text("state"),
    "series": _text("series"),
    "workload": _joined(" on ", _text("workload"), _text("dataset")),
    "parallel": _text("parallel"),
    "ranks": _number("world_size"),
    "nodes x ranks": _joined(" x ", _number("nodes"), _number("ranks_per_node")),
    "precision": _text("precision"),
    "batch": _number("global_batch"),
    "samples/s": _number("throughput"),
    "seconds": _number("seconds"),
    "test accuracy": _number("test_accuracy"),
    "energy (kJ)": _number("energy_joules", 1e-3),
    "commit": lambda run: _plain(run.get("commit"))[:SHORT],
    "job": _text("job_id"),
    "host": _text("host"),
}


def _runs(evidence: Evidence, links: Links) -> Table:
    """Every run, whatever its state; columns that are empty for all runs are omitted."""
    complete = {run["run_id"]: run for run in evidence.found.runs.to_dict("records")}
    known, given = {}, {}
    for run_id in links.runs:
        request = _request(evidence.results / "runs" / run_id)
        config = request.pop("config", None) or {}
        given[run_id] = {key: _plain(value) for key, value in config.items() if value not in (None, {}, [])}
        state = complete.get(run_id) or {"state": _state(run_id, evidence)}
        known[run_id] = given[run_id] | request | state | {"series": ", ".join(links.series.get(run_id, ()))}
    first = next(iter(given.values()), {})
    same = {key: value for key, value in first.items() if all(own.get(key) == value for own in given.values())}
    cells = {run_id: {name: write(run) for name, write in COLUMNS.items()} for run_id, run in known.items()}
    columns = [name for name in COLUMNS if not cells or any(own[name] for own in cells.values())]
    rows = []
    for run_id, own in cells.items():
        parameters = " ".join(f"{key}={value}" for key, value in given[run_id].items() if key not in same)
        link = links.file(f"runs/{run_id}", run_id)
        rows.append(Row(f"run-{run_id}", [link, *(own[name] for name in columns), parameters]))
    states = [run["state"].partition(":")[0] for run in known.values()]
    find = Markup('<a href="#runs" data-find="{1}">{0} {1}</a>')
    notes = (
        [Markup(", ").join(find.format(states.count(state), state) for state in sorted(set(states)))]
        if states
        else []
    )
    if same:
        notes.append(f"The same in all runs: {', '.join(f'{key}={value}' for key, value in same.items())}.")
    about = "Every run, whatever its state. Its name leads to its records. Search for any words, also parameters, as in lr=0.1."
    return Table("runs", about, ["run", *columns, "parameters"], rows, ["parameters"], notes)


def _plain(value: Any) -> str:
    if value is None or value != value:
        return ""
    return value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else json.dumps(value)


def _series(results: Path) -> dict[str, list[str]]:
    """{run: its series in each study}, with the study's name where there are several studies."""
    found: dict[str, list[str]] = {}
    studies = {path.stem: read_json(path) for path in sorted((results / "studies").glob("*.json"))}
    for study, index in studies.items():
        for run in (index or {}).get("runs", ()):
            series = run.get("series") or "run"
            found.setdefault(run["run_id"], []).append(f"{study}: {series}" if len(studies) > 1 else series)
    return found


def _state(run_id: str, evidence: Evidence) -> str:
    """The state of a run that is not complete, with the reason."""
    if run_id in evidence.found.refused:
        return f"refused: {evidence.found.refused[run_id]}"
    reason = (read_json(evidence.results / "runs" / run_id / "status.json") or {}).get("reason")
    state = evidence.found.unfinished.get(run_id, ABSENT)
    return f"{state}: {reason}" if reason else state


def _request(folder: Path) -> dict[str, Any]:
    """The request of a run, complete or not."""
    requests = (read_json(folder / name) for name in ("run.json", "request.json"))
    return next((request for request in requests if isinstance(request, dict)), {})
