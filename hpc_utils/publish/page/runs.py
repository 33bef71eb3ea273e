"""The page's runs: one row each, whatever became of it, and what is known of it beside."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_utils import records
from hpc_utils.publish import style
from hpc_utils.publish.address import relative
from hpc_utils.records import packed
from hpc_utils.records.folder import read_json

ABSENT = "absent"  # the state of a run that its study asks for, and nobody measured


@dataclass(frozen=True)
class Column:
    """One column of the table of runs; `of` makes its text of what is known of a run."""

    name: str
    of: Callable[[dict[str, Any]], str]
    shape: str = ""  # number, or long: text that may need several lines
    says: str = ""


@dataclass(frozen=True)
class Run:
    """A row. `folder` is the link to the run's records, empty where there are none."""

    run_id: str
    folder: str
    state: str
    cells: list[str]
    facts: dict[tuple[str, str], str]  # (group, name): value

    @property
    def anchor(self) -> str:
        """Where it stands in the page."""
        return f"run-{self.run_id}"


@dataclass(frozen=True)
class Runs:
    """The rows with their columns; `lacking` names the columns that no run has anything in."""

    columns: list[Column]
    rows: list[Run]
    lacking: list[str]

    def states(self) -> dict[str, int]:
        """How many runs are in each state; complete ones first."""
        names = [row.state for row in self.rows]
        return {name: names.count(name) for name in sorted(set(names), key=lambda name: (name != "complete", name))}


def _text(name: str, size: int | None = None) -> Callable[[dict[str, Any]], str]:
    return lambda known: said(known.get(name))[:size]


def _number(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda known: style.number(known[name]) if is_number(known.get(name)) else ""


def _workload(known: dict[str, Any]) -> str:
    workload, dataset = said(known.get("workload")), said(known.get("dataset"))
    return f"{workload} on {dataset}" if workload and dataset else workload


def _layout(known: dict[str, Any]) -> str:
    nodes, ranks = known.get("nodes"), known.get("ranks_per_node")
    return f"{said(nodes)} x {said(ranks)}" if is_number(nodes) and is_number(ranks) else ""


def _state(known: dict[str, Any]) -> str:
    return f"{known['state']}: {known['why']}" if known.get("why") else known["state"]


def _energy(known: dict[str, Any]) -> str:
    joules = known.get("energy_joules")
    return style.number(joules / 1e3) if is_number(joules) else ""


COLUMNS = (
    Column("state", _state, "long"),
    Column("series", lambda known: ", ".join(known["series"]), "long"),
    Column("workload", _workload),
    Column("parallel", _text("parallel")),
    Column("ranks", _number("world_size"), "number"),
    Column("layout", _layout, says="nodes x ranks on each"),
    Column("precision", _text("precision")),
    Column("batch", _number("global_batch"), "number", "global: samples a step, of all ranks"),
    Column("samples/s", _number("throughput"), "number"),
    Column("seconds", _number("seconds"), "number"),
    Column("test accuracy", _number("test_accuracy"), "number"),
    Column("energy (kJ)", _energy, "number"),
    Column("commit", _text("commit", 10)),
    Column("job", _text("job_id")),
    Column("host", _text("host")),
)


def runs_of(results: Path, page: Path, found: records.Records, wanted: Collection[str] | None = None) -> Runs:
    """The runs of the result set `results` for the page in the file `page`, those of the studies in the order of their runs.

    Args:
        found: what `records.load` says of the whole set.
        wanted: ids of the only runs to show.
    """
    series = _series(results)
    complete = {row["run_id"]: row for row in found.runs.to_dict("records")}
    ids = dict.fromkeys([*series, *complete, *found.refused, *found.unfinished])
    rows = [
        _run(run_id, results, page, complete, found, series.get(run_id, []))
        for run_id in ids
        if wanted is None or run_id in wanted
    ]
    empty = {place for place, _ in enumerate(COLUMNS) if not any(row.cells[place] for row in rows)} if rows else set()
    for row in rows:
        row.cells[:] = [cell for place, cell in enumerate(row.cells) if place not in empty]
    return Runs(
        [column for place, column in enumerate(COLUMNS) if place not in empty],
        rows,
        [COLUMNS[place].name for place in sorted(empty)],
    )


def link(target: Path, page: Path) -> str:
    """The way from the folder of the file `page` to `target`, as a link that works from disk."""
    return relative(target, page.parent)


def link_to(path: Path, page: Path) -> str:
    """A link to a run's folder, or to a file in it; of a packed run to the file that holds it; "" if it is gone."""
    held = packed.holder(path)
    return "" if held is None else link(held, page) + "/" * held.is_dir()


def said(value: Any) -> str:
    """Any value of a record as text; nothing for what is not known."""
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return ", ".join(map(said, value))
    return json.dumps(value)


def is_number(value: Any) -> bool:
    """Whether a record holds a number there."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _series(results: Path) -> dict[str, list[str]]:
    """{run id: its series in each study that asks for it}; with the study's name where there are several."""
    found: dict[str, list[str]] = {}
    studies = sorted((results / "studies").glob("*.json"))
    for path in studies:
        index = read_json(path)
        for run in index.get("runs", ()) if isinstance(index, dict) else ():
            series = said(run.get("series")) or "run"
            found.setdefault(run["run_id"], []).append(f"{path.stem}: {series}" if len(studies) > 1 else series)
    return found


def _run(run_id: str, results: Path, page: Path, complete: dict, found: records.Records, series: list[str]) -> Run:
    folder = results / "runs" / run_id
    asked, origin = (_dict(folder / name) for name in ("run.json", "provenance.json"))
    if not asked:
        asked = _dict(folder / "request.json")
    config = asked.pop("config", None)
    config = config if isinstance(config, dict) else {}
    if run_id in complete:
        known = dict(complete[run_id])
    else:
        state, why = found.unfinished.get(run_id, ABSENT), said(_dict(folder / "status.json").get("reason"))
        if run_id in found.refused:
            state, why = "refused", found.refused[run_id]
        job = origin.get("job")
        known = config | asked | {"state": state, "why": why, "commit": origin.get("commit")}
        known["job_id"] = job.get("id") if isinstance(job, dict) else None
    known["series"] = series
    return Run(
        run_id,
        link_to(folder, page),
        known["state"],
        [column.of(known) for column in COLUMNS],
        dict(_facts(known, config, asked, origin)),
    )


def _facts(known: dict, config: dict, asked: dict, origin: dict) -> Iterator[tuple[tuple[str, str], str]]:
    """What is said of a run on demand: its parameters, what else was measured, and where it comes from."""
    measured = {name: known.get(name) for name in ("epochs", "samples", "step_p50", "device_name", "peak_rss_bytes")}
    for group, tree in (("parameters", config), ("run", measured | asked), ("provenance", origin)):
        for name, value in _leaves(tree):
            if name not in ("run_id", "schema") and (text := said(value)):
                yield (group, name), text


def _leaves(tree: dict[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{before}{name}.")
        elif value not in ([], {}):
            yield f"{before}{name}", value


def _dict(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path)
    except (OSError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
