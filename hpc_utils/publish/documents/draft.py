"""A new document: a page about one study, whose numbers are cited cells, and its entry in paper.toml."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_utils import records
from hpc_utils.analyze import scaling
from hpc_utils.publish import cells, exports, formatting
from hpc_utils.publish.exports import Item
from hpc_utils.records import atomic

from . import project
from .project import ProjectError

TEMPLATES = Path(__file__).parent / "templates"
ALIAS = "mine"  # of results/
LABELS = ("", "scaling-")  # before the names of what chapters 06 and 03 export about a study
# The columns that tell rows apart, in the order in which they are tried; then all others but these, which may change.
KEYS = ("kind", "world_size", "ranks", "precision", "baseline", "parallel", "global_batch", "batch", "layout")
LOOSE = {"repeats", "target", "verdict", "why", "device_name"}
VARIED = ("workload", "scheme", "hardware_id", "nodes")  # columns of the page's table if the rows differ in them


@dataclass(frozen=True)
class Row:
    """A row of an exported table: its fields, and the citations of its cells."""

    table: str
    measure: str
    keys: str
    fields: dict[str, Any]

    def has(self, column: str) -> bool:
        return not pd.isna(self.fields.get(column))

    def cite(self, column: str, form: str = "") -> str:
        """`{{mine:laptop-efficiency.throughput[kind=strong, ...]|interval}}`; the word itself (`form="word"`); a dash where it is empty.

        A value that has no interval despite its repeats, such as the efficiency of a baseline, is cited without form.
        """
        if not self.has(column):
            return formatting.ABSENT
        if form == "word":
            return str(self.fields[column])
        low = "low" if column == self.measure else f"{column}_low"
        form = f"|{form}" * bool(form and (self.has(low) or self.fields["repeats"] == 1))
        return f"{{{{{self.table}.{column}{self.keys}{form}}}}}"


def write(root: Path, results: Path, name: str, study: str = "") -> Path:
    """Write `paper/NAME.md` about `study` of the set `results`, and add it to paper.toml.

    `study`: by default the one called NAME, or the only one.

    Raises:
        ProjectError: NAME is taken, there is no such study, or it has exported no throughput.
    """
    import jinja2

    toml, path = root / "paper/paper.toml", root / f"paper/{name}.md"
    known, exported = project.read(toml), exports.read(results)
    if fault := project.unfit(name):
        raise ProjectError(fault)
    if name in known.document or path.exists():
        raise ProjectError(f"{path} exists, or paper.toml has a document {name}: choose another name")
    studies = [one.name for one in records.studies(results)]
    study = study or (studies[0] if len(studies) == 1 else name)
    if study not in studies:
        others = f"; or give one of them with --study: {', '.join(studies)}" if studies else ""
        raise ProjectError(f"no study {study!r} in {results}: `hpc study run {study}` makes it{others}")
    aliases = {(root / folder).resolve(): alias for alias, folder in known.sets.items()}
    alias = aliases.get(results.resolve(), ALIAS)
    if results.resolve() not in aliases and ALIAS in known.sets:
        raise ProjectError(f"{toml}: {ALIAS} is another folder than {results}: give that a name in [sets]")

    def named(items: dict[str, Item], name: str) -> Item | None:
        return next((items[full] for label in LABELS if (full := f"{study}-{label}{name}") in items), None)

    tables = {}
    for table in ("summary", "efficiency", "throughput", "targets"):
        if item := named(exported.tables, table):
            frame = exported.frame(item.name)
            some = scaling.headline(frame) if table == "efficiency" else frame
            tables[table] = [_row(alias, item, frame, fields) for fields in some.to_dict("records")]
    measure = "efficiency" if "efficiency" in tables else "throughput"
    if not (points := tables.get(measure)):
        anew = f"`hpc chapter 06_paper_figures -p study={study}`"
        raise ProjectError(f"{results} has no table of the throughput of {study}: {anew} exports it")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True,
        comment_start_string="{##",
    )  # fmt: skip
    text = environment.get_template("study.md.j2").render(
        study=study, alias=alias, points=points, measure=measure, figure=named(exported.figures, measure),
        summary=next(iter(tables.get("summary", ())), None), targets=tables.get("targets", ()),
        panels=len({(row.fields.get("kind"), row.fields.get("batch")) for row in points}),
        largest=max(points, key=lambda row: [row.fields["world_size"], row.fields.get("kind") == "strong", row.fields["precision"] == "fp32"]),
        varied=[(name.replace("_", " ").capitalize(), name, "word") for name in VARIED if len({row.fields.get(name) for row in points}) > 1],
    )  # fmt: skip
    entry = f'\n[document.{name}]\nsource = "{name}.md"\ntemplate = "report"\nsets = ["{alias}"]\n'
    project_text = toml.read_text(encoding="utf-8").rstrip() + "\n" + entry
    if alias not in known.sets:
        place = results.relative_to(root) if results.is_relative_to(root) else results
        project_text = re.sub(
            r"^\[sets\].*\n", rf"\g<0>{alias} = {json.dumps(str(place))}\n", project_text, count=1, flags=re.M
        )
    atomic.write_text(path, text)
    atomic.write_text(toml, project_text)
    return path


def _row(alias: str, item: Item, frame: pd.DataFrame, fields: dict[str, Any]) -> Row:
    """The row of a table that has `fields`, with keys that leave no other row."""
    words = [name for name, unit in item.units.items() if unit in ("text", "count") and name not in LOOSE]
    keys = []
    for name in sorted(words, key=lambda name: KEYS.index(name) if name in KEYS else len(KEYS)):
        fits = frame[frame[name].map(cells.key) == cells.key(fields[name])]
        if len(fits) < len(frame):
            keys, frame = [*keys, f"{name}={cells.key(fields[name])}"], fits
    return Row(f"{alias}:{item.name}", item.measure, f"[{', '.join(keys)}]" * bool(keys), fields)
