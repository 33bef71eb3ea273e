"""A new document from a template, whose numbers are cited cells, and its entry in paper.toml.

The template `page` is about one study and is complete. The others are beginnings, with guidance for their writer; what the set lacks is
cited all the same, and printed as "not measured" until it is exported.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_utils import paths, records
from hpc_utils.analyze import anomalies, budget, scaling
from hpc_utils.publish import cells, exports, formatting
from hpc_utils.publish.exports import Exports, Item
from hpc_utils.records import atomic, identity
from hpc_utils.records.identity import POINT, SAME

from . import project
from .project import ProjectError

FOLDER = Path(__file__).parent / "drafts"
ALIAS = "mine"  # of results/
TEMPLATES = tomllib.loads(Path(__file__).with_name("drafts.toml").read_text())
LABELS = ("plan-", "profiling-", "speed-")  # of tables and figures of other chapters than 03 and 06
# Of chapters 03 and 06.
TABLES = ("summary", "efficiency", "throughput", "targets", "unit-rates", "learned")
# In the order tried.
KEYS = [
    *("name", "study", "finding", "kind", "world_size", "ranks", "precision"),
    *("baseline", "scheme", "batch", "metric"),
    *POINT,
    *(name for name in SAME if name != "settings"),
]


@dataclass(frozen=True)
class Row:
    """A row of an exported table: its fields, and the citations of its cells.

    `settings`: the fields that are settings in which the rows differ. `planned`: a missing field is cited, too."""

    table: str
    measure: str
    keys: str
    fields: dict[str, Any]
    planned: bool = False
    settings: tuple[str, ...] = ()

    def has(self, column: str) -> bool:
        return not pd.isna(self.fields.get(column))

    @property
    def variant(self) -> str:
        """` with norm = [post]{.setting}`: its settings in which the rows of the table differ; "" if they are alike."""
        values = [f"{name} = [{self.fields[name]}]{{.setting}}" for name in self.settings if self.has(name)]
        return f" with {', '.join(values)}" * bool(values)

    @property
    def relative(self) -> str:
        """`, relative to DDP on one rank`: what an efficiency is against, where that is not one process without a group."""
        return scaling.relative(self.fields.get("baseline", "none"))

    @property
    def base(self) -> dict[str, Any]:
        """What the row of T(1) of an efficiency has: one rank with the scheme and, of strong scaling, the batch of its baseline."""
        fields = self.fields
        batch = fields.get("batch") if fields.get("kind") in ("strong", "weak") else None
        known = {"parallel": fields.get("baseline"), "global_batch": batch}
        return {"world_size": 1} | {name: value for name, value in known.items() if value is not None}

    def equal(self, other: Row) -> int:
        """How many of workload, precision and settings are as in `other`."""
        names = ("workload", "precision", *other.settings)
        return sum(other.has(name) and self.fields.get(name) == other.fields[name] for name in names)

    def cite(self, column: str, form: str = "") -> str:
        """`{{mine:laptop-efficiency.throughput[kind=strong, ...]|interval}}`; a dash where it is empty.

        A value that has no interval despite its repeats, such as the efficiency of a baseline, is cited without form.
        """
        if not self.has(column) and not self.planned:
            return formatting.ABSENT
        low = f"{column}_low"
        form = f"|{form}" * bool(form and (not self.fields or self.has(low) or self.fields.get("repeats") == 1))
        return f"{{{{{self.table}.{column}{self.keys}{form}}}}}"


@dataclass(frozen=True)
class Cited:
    """What a template cites of the set `alias`: tables and figures by their names without the study, and without the label of chapters 03 and 06."""

    alias: str
    study: str
    exported: Exports

    def row(self, table: str, like: Row | None = None, **wanted: Any) -> Row:
        """A row that fits: of several the one most equal to `like`, whose settings name its variant, too; then the one on most
        ranks, then the fastest."""
        name = self._name(self.exported.tables, table)
        rows = _rows(self.alias, self.exported.tables[name], self.exported) if name in self.exported.tables else []
        rows = [row for row in rows if wanted.items() <= row.fields.items()]
        if rows:
            sizes = ("world_size", "throughput")
            fits = [(row.equal(like) if like else 0, *(row.fields.get(name, 0) for name in sizes)) for row in rows]
            chosen = rows[fits.index(max(fits))]
            settings = like.settings if like and like.fields else chosen.settings
            return replace(chosen, planned=True, settings=settings)
        keys = ", ".join(f"{key}={value}" for key, value in wanted.items())
        return Row(f"{self.alias}:{name}", "", f"[{keys}]" * bool(keys), {}, planned=True)

    def figure(self, *names: str) -> str:
        """The address of the first figure that the set has."""
        return f"figure:{self.alias}:{self._name(self.exported.figures, *names)}"

    def table(self, *names: str) -> str:
        """The address of the first table that the set has."""
        return f"table:{self.alias}:{self._name(self.exported.tables, *names)}"

    def columns(self, table: str, *names: str) -> str:
        """The attribute `columns` of a table: the settings in which its rows differ, then these."""
        full_name = self._name(self.exported.tables, table)
        is_exported = full_name in self.exported.tables
        varied = cells.varied_settings(self.exported.frame(full_name)) if is_exported else ()
        return ",".join([*varied, *names])

    def _name(self, exported_names: Container[str], *names: str) -> str:
        full = []
        for name in names:
            labels = ("",) if name.startswith(LABELS) else ("scaling-", "")
            if self.study:
                full += [f"{self.study}-{label}{name}" for label in labels]
            if name.startswith(LABELS) or not self.study:
                full.append(labels[0] + name)
        return next((full_name for full_name in full if full_name in exported_names), full[-1])


def _bases(exported: Exports) -> str:
    """What the bases in the exported table of resources mean, in a sentence."""
    if "plan-resources" not in exported.tables:
        return ""
    named = " ".join(exported.frame("plan-resources").Basis.astype(str))
    return "; ".join(f"*{basis}*: {meaning}" for basis, meaning in budget.BASES.items() if basis in named)


def write_draft(root: Path, results: Path, name: str, study: str = "", template: str = "page") -> Path:
    """Write `paper/NAME.md` about `study` of the set `results`, and add it to paper.toml.

    `study`: by default the one called NAME; of the templates other than `page` the only one, or else the whole set.

    Raises:
        ProjectError: NAME is taken, or the study of a page has exported no throughput. UnknownStudy: there is no such study.
    """
    import jinja2

    toml = root / "paper/paper.toml"
    path = root / f"paper/{name}.md"
    paper = project.read_project(toml)
    exported = exports.read_exports(results)
    if fault := project.unfit(name):
        raise ProjectError(fault)
    if name in paper.document or path.exists():
        raise ProjectError(
            f"{path} exists, or paper.toml has a document {name}: choose another name, or remove both to begin again"
        )
    set_folder = results.resolve()
    places = {set_alias: (root / folder).resolve() for set_alias, folder in paper.sets.items()}
    default = (
        ALIAS
        if set_folder == paths.results().resolve()
        else re.sub(r"[^a-z0-9]+", "-", results.name.lower()).strip("-")
    )
    alias = next((set_alias for set_alias, place in places.items() if place == set_folder), default)
    if places.get(alias, set_folder) != set_folder:
        raise ProjectError(f"{toml}: {alias} is another folder than {results}: give that a name in [sets]")

    chosen = TEMPLATES[template]
    if template == "page":
        study = study or name
    elif not study and len(several := records.studies(results)) == 1:
        study = several[0].name
    about = records.read_study(study, results).about if study else ""
    loaded = records.load(results, study=study or None)
    runs = loaded.runs
    imported = identity.imported_sets(runs.hardware_id)
    is_script = runs.workload.astype(str).str.endswith(".py").any()
    content = {}
    if template == "page":
        is_disturbed = "outside load" in set(anomalies.find_anomalies(runs).finding)
        content = _page(results, study, alias, exported) | {"is_disturbed": is_disturbed}
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, comment_start_string="{##", keep_trailing_newline=True,
        loader=jinja2.FileSystemLoader(FOLDER),
    )  # fmt: skip
    text = environment.get_template(chosen["file"]).render(
        chosen.get("values", {}), name=name, alias=alias, study=study, title=study or results.name,
        cited=Cited(alias, study, exported), imported=imported, is_script=is_script, has_repeats=runs.repeat.nunique() > 1,
        devices=runs.device_name.nunique(), unfinished=len(loaded.unfinished), bases=_bases(exported),
        source=about or f"Imported: {', '.join(imported)}", **content,
    )  # fmt: skip
    entry = f'\n[document.{name}]\nsource = "{name}.md"\ntemplate = "{chosen["kind"]}"\nsets = ["{alias}"]\n'
    entry += f'planned = ["{alias}"]  # what it lacks is printed as "not measured"\n' * (template != "page")
    project_text = toml.read_text(encoding="utf-8").rstrip() + "\n" + entry
    if alias not in paper.sets:
        place = results.relative_to(root) if results.is_relative_to(root) else results
        project_text = re.sub(
            r"^\[sets\].*\n", rf"\g<0>{alias} = {json.dumps(str(place))}\n", project_text, count=1, flags=re.M
        )
    atomic.write_text(path, text)
    atomic.write_text(toml, project_text)
    return path


def _page(results: Path, study: str, alias: str, exported: Exports) -> dict[str, Any]:
    """What the template `page` reads."""
    index = records.read_study(study, results)
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
        complete = len(records.load(results, study=study).runs)
        wanted = len(index.run_ids)
        anew = (
            f"`hpc chapter 06_paper_figures -p study={study}` exports it of the {complete} complete of {wanted} runs"
        )
        raise ProjectError(f"{results} has no table of the throughput of {study}: {anew}")
    rows = {name: _rows(alias, tables[name], exported) for name in TABLES if name in tables}
    settings = list(dict.fromkeys(name for table in rows.values() for row in table for name in row.settings))
    return {
        "tables": rows, "figures": figures, "settings": settings, "baseline_text": scaling.baseline_text,
    }  # fmt: skip


def _rows(alias: str, item: Item, exported: Exports) -> list[Row]:
    """The rows of a table, of efficiencies those against the first baseline, each with keys that leave no other row."""
    exported_frame = exported.frame(item.name)
    frame = cells.with_settings(exported_frame)
    settings = cells.varied_settings(exported_frame)
    rows = []
    for fields in (scaling.headline(frame) if item.measure == "efficiency" else frame).to_dict("records"):
        keys = []
        left = frame
        for name in filter(frame.columns.__contains__, [*KEYS, *settings]):
            fits = left[left[name].map(cells.key) == cells.key(fields[name])]
            if len(fits) < len(left) or name == "baseline":
                keys = [*keys, f"{name}={cells.key(fields[name])}"]
                left = fits
        rows.append(
            Row(
                f"{alias}:{item.name}",
                item.measure,
                f"[{', '.join(keys)}]" * bool(keys),
                fields,
                settings=settings,
            )
        )
    return rows
