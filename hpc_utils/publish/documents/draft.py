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
from hpc_utils.publish.exports import Exports, Item
from hpc_utils.records import atomic
from hpc_utils.records.identity import POINT, SAME

from . import project
from .project import ProjectError

TEMPLATES = Path(__file__).parent / "templates"
ALIAS = "mine"  # of results/
TABLES = ("summary", "efficiency", "throughput", "targets", "finding-counts")  # of chapters 03 and 06
KEYS = [
    *["finding", "kind", "world_size", "ranks", "precision", "baseline", "scheme", "batch"],
    *POINT,
    *SAME,
]  # in the order tried


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
        """`{{mine:laptop-efficiency.throughput[kind=strong, ...]|interval}}`; a dash where it is empty.

        A value that has no interval despite its repeats, such as the efficiency of a baseline, is cited without form.
        """
        if not self.has(column):
            return formatting.ABSENT
        low = "low" if column == self.measure else f"{column}_low"
        form = f"|{form}" * bool(form and (self.has(low) or self.fields["repeats"] == 1))
        return f"{{{{{self.table}.{column}{self.keys}{form}}}}}"


def write(root: Path, results: Path, name: str, study: str = "") -> Path:
    """Write `paper/NAME.md` about `study` of the set `results`, and add it to paper.toml.

    `study`: by default the one called NAME.

    Raises:
        ProjectError: NAME is taken, or the study has exported no throughput. UnknownStudy: there is no such study.
    """
    import jinja2

    toml, path = root / "paper/paper.toml", root / f"paper/{name}.md"
    known, exported = project.read(toml), exports.read(results)
    if fault := project.unfit(name):
        raise ProjectError(fault)
    if name in known.document or path.exists():
        raise ProjectError(f"{path} exists, or paper.toml has a document {name}: choose another name")
    index = records.read_study(study := study or name, results)
    here, places = results.resolve(), {one: (root / folder).resolve() for one, folder in known.sets.items()}
    alias = next((one for one, place in places.items() if place == here), ALIAS)
    if places.get(alias, here) != here:
        raise ProjectError(f"{toml}: {ALIAS} is another folder than {results}: give that a name in [sets]")

    # By their names without the label of their chapter; those of 06, without a label, before those of 03.
    tables, figures = (
        {
            full.removeprefix(label): item
            for label in (f"{study}-scaling-", f"{study}-")
            for full, item in items.items()
            if full.startswith(label)
        }
        for items in (exported.tables, exported.figures)
    )
    if "throughput" not in tables:
        complete, wanted = len(records.load(results, study=study).runs), len(index.run_ids)
        anew = (
            f"`hpc chapter 06_paper_figures -p study={study}` exports it of the {complete} complete of {wanted} runs"
        )
        raise ProjectError(f"{results} has no table of the throughput of {study}: {anew}")
    rows = {name: _rows(alias, tables[name], exported) for name in TABLES if name in tables}
    source = (TEMPLATES / "study.md.j2").read_text(encoding="utf-8")
    page = jinja2.Template(source, undefined=jinja2.StrictUndefined, trim_blocks=True, comment_start_string="{##")
    text = page.render(study=study, alias=alias, tables=rows, figures=figures, baseline_text=scaling.baseline_text)
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


def _rows(alias: str, item: Item, exported: Exports) -> list[Row]:
    """The rows of a table, of efficiencies those against the first baseline, each with keys that leave no other row."""
    frame = exported.frame(item.name)
    found = []
    for fields in (scaling.headline(frame) if item.measure == "efficiency" else frame).to_dict("records"):
        keys, left = [], frame
        for name in filter(frame.columns.__contains__, KEYS):
            fits = left[left[name].map(cells.key) == cells.key(fields[name])]
            if len(fits) < len(left) or name == "baseline":
                keys, left = [*keys, f"{name}={cells.key(fields[name])}"], fits
        found.append(Row(f"{alias}:{item.name}", item.measure, f"[{', '.join(keys)}]" * bool(keys), fields))
    return found
