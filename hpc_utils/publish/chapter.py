"""A chapter: the records that it reads, and the tables and figures that it exports.

    ch = Chapter("03_scaling", study=study, label="scaling")
    curves = ch.export(scaling.efficiency(ch.runs))
    ch.show(targets.judge(curves, ch.targets))
    ch.figure(scaling_plots.efficiency(curves, ch.targets), scaling_plots.throughput(curves))
    ch.close()

Each table and figure gets a name that starts with the chapter's label (and its study, if it is about one): `scaling-efficiency`,
`laptop-scaling-efficiency`. Texts cite cells of the tables by these names.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from IPython import get_ipython
from IPython.display import Image, Markdown, display
from matplotlib import pyplot as plt

from hpc_utils import paths, provenance, records
from hpc_utils.analyze.table import KEY, Table
from hpc_utils.plural import counted
from hpc_utils.records import atomic, fingerprint, identity
from hpc_utils.records.study import StudyIndex, Targets

from . import exports, tables
from .exports import BEHIND, ExportError
from .plots import drawing, style
from .plots.chart import Chart
from .quantities import unit_of

# The columns that tell what a row is of.
ROW = {
    *identity.SAME, *identity.POINT,
    "kind", "batch", "baseline", "layout", "epochs", "metric", "statistic", "target", "finding", "which",
}  # fmt: skip


class Chapter:
    """Reads the runs of a result set, or of one of its studies, and collects what the chapter exports; `close()` writes it.

    Args:
        notebook: its name, such as `03_scaling`. study: "" for a chapter about the whole set.
        label: first part of the names of its tables and figures; "": the study's name alone.
        required: refuse a set without a complete run. example: a committed set, a copy of which is shown, and not kept, in place
            of a set without one.

    Raises:
        LookupError: no complete run, although `required`.
    """

    def __init__(
        self, notebook: str, *, study: str = "", label: str = "", required: bool = True, example: str = ""
    ) -> None:
        style.apply()
        self.notebook = notebook
        self.study = study
        self.results = paths.results()
        self.prefix = "-".join(filter(None, (study, label)))
        self.outside: Mapping[str, Path] = {}  # {`profile:NAME`: its file} of evidence outside the set
        self.files: list[str] = []
        self.records = records.load(study=study or None)
        if example and not study and self.records.runs.empty:
            self._copy = tempfile.TemporaryDirectory(prefix="hpc-example-")
            self.results = Path(self._copy.name) / example
            shutil.copytree(paths.reference() / example, self.results)
            self.records = records.load(self.results)
            display(
                Markdown(f"*Nothing was measured here: this is the committed set `{example}`; nothing is exported.*")
            )
        self.runs, self.epochs = self.records.runs, self.records.epochs
        if required and self.runs.empty:
            whose = f"of the study {study!r} " if study else ""
            raise LookupError(
                f"No complete run {whose}in {self.results.name}/: `hpc study run {study or 'laptop'}` makes some."
            )
        self.index: StudyIndex | None = records.read_study(study) if study else None
        self.targets = self.index.scaling_targets if self.index else Targets()
        self.items: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in exports.KINDS}

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """As of `records.load_rounds`: of the runs that took turns."""
        return records.load_rounds(self.runs, self.results)

    def name(self, name: str) -> str:
        """The full name of a table or figure."""
        return "-".join(filter(None, (self.prefix, name)))

    def overview(self) -> Markdown:
        """The number of complete runs; the refused, unfinished and not applicable ones with the reason; those of other code."""
        refused = self.records.refused
        unfinished = self.records.unfinished
        beyond = sorted({(point.series, point.why) for point in self.index.not_applicable}) if self.index else ()
        lines = [
            f"**{counted(len(self.runs), 'complete run')}**; {len(refused)} refused because their records contradict "
            f"themselves, {len(unfinished)} not complete.",
            *(f"**imported, not measured here**: {name}" for name in identity.imported_sets(self.runs.hardware_id)),
            *(f"refused: `{name}`: {why}" for name, why in refused.items()),
            *(f"{state}: `{name}`" for name, state in unfinished.items()),
            *(f"not applicable: {series}: {why}" for series, why in beyond),
            *records.by_other_code(self.records, self.results, self.study),
        ]
        return Markdown("\n- ".join(lines))

    def export(
        self, data: pd.DataFrame, name: str = "", caption: str = "", *, runs: Iterable[str] | None = None,
        files: Iterable[str] = (), **description: str,
    ) -> pd.DataFrame:  # fmt: skip
        """Write `data` as `tables/<name>.csv`, without its index, and return it; an empty one is not written.

        Args:
            name, caption, description: of its `Table`; by default as its analysis describes it.
            runs: ids of what all rows rest on; by default those in the columns of run ids, or all runs of the chapter.
            files: evidence besides runs.

        Raises:
            ExportError: there is no name, or it is used; the chapter did not read the runs.
        """
        table = _described(data, name=name, caption=caption, **description)
        if data.empty:
            return data
        if not table.name:
            raise ExportError("a table without a name: its analysis has no `tabled`: give it a name and a caption")
        units = {column: unit_of(column, data[column]) for column in data if column not in BEHIND}
        units = {column: unit for column, unit in units.items() if unit}
        details = {"measure": table.measure, "units": units, "span": table.span, "evidence": list(files)}
        path = self.results / "tables" / f"{self.name(table.name)}.csv"
        atomic.write_text(path, _csv(data))
        self._add("tables", table.name, table.caption, data, runs, path, details)
        return data

    def show(
        self, data: pd.DataFrame, name: str = "", caption: str = "", *, columns: str = "", missing: str = "", **options: Any
    ) -> None:  # fmt: skip
        """`export` a table and show its columns; of an empty one show what to measure."""
        self.export(data, name, caption, **options)
        table = _described(data, columns=columns, missing=missing)
        self.display(data, table.columns, missing=table.missing)

    def display(self, data: pd.DataFrame, columns: str | Sequence[str] = (), *, missing: str = "") -> None:
        """Show a table without exporting it, or some of its `columns` (names separated by spaces), with units and intervals; of an
        empty one what to measure (`missing`). What else tells configurations apart, such as settings, stands in front."""
        if data.empty:
            self.not_measured(missing)
            return
        columns = columns.split() if isinstance(columns, str) else columns
        measure = _described(data).measure
        if columns and "settings" in data:
            data, names = drawing.apart(data, [name for name in columns if name in ROW], identity.SAME)
            columns = [*names, *columns]
        html, text = tables.readable(data, columns, measure)
        display({"text/html": html, "text/plain": text}, raw=True)

    def text_table(self, data: pd.DataFrame, name: str, caption: str, **options: Any) -> None:
        """`export` a table of text (`publish.tables`), also as Markdown and LaTeX beside its CSV, and show it."""
        self.export(data, name, caption, **options)
        stem = self.results / "tables" / self.name(name)
        atomic.write_text(stem.with_suffix(".md"), tables.markdown(data) + "\n")
        atomic.write_text(stem.with_suffix(".tex"), tables.latex(data, caption))
        display({"text/html": tables.html(data, data.columns), "text/plain": tables.markdown(data)}, raw=True)

    def not_measured(self, missing: str) -> None:
        """Show that there is no measurement, and what makes one (`missing`). If that starts with a command, which measures what this
        study does not, the report leaves the line out."""
        properties = {"elsewhere": missing.startswith("`")}
        display(
            Markdown(f"*Not measured{f': {missing}' if missing else ''}.*"), metadata={"text/markdown": properties}
        )

    def figure(self, *charts: Chart, missing: str = "") -> None:
        """Save each chart as `figures/<name>.pdf` and `.png`, and show it; the page keeps its data. A chart without data is skipped;
        if all are, what to run (`missing`) is shown."""
        drawn = [chart for chart in charts if chart.figure is not None]
        for chart in drawn:
            name = self.name(chart.name)
            if sets := identity.imported_sets(self.runs.hardware_id):
                style.mark(chart.figure, f"imported: {', '.join(sets)}")
            pdf = style.save(chart.figure, name, self.results / "figures")
            self._add("figures", chart.name, chart.caption, chart.data, chart.runs, pdf, {"data": _csv(chart.data)})
            if get_ipython() is not None:
                properties = {"alt": chart.caption, "figure": name}  # by these the report finds runs and files
                width = round(chart.figure.get_figwidth() * chart.figure.dpi)
                display(Image(pdf.with_suffix(".png"), width=width), metadata={"image/png": properties})
                plt.close(chart.figure)  # otherwise it is shown again at the end of the cell
        if missing and not drawn:
            self.not_measured(missing)

    def rests_on(self, *files: str | Path) -> None:
        """Add evidence of the whole chapter, besides runs: files of the project, or of the set."""
        for file in map(Path, files):
            inside = file.is_relative_to(self.results)
            home = self.results if inside else paths.root()
            self.files.append(exports.PROJECT * (not inside) + (home / file).relative_to(home).as_posix())

    def close(self) -> str:
        """Write `exports/<stem>.json`; returns a line about it for the notebook."""
        evidence = {file for item in self.items["tables"].values() for file in item.get("evidence", ())}
        evidence.update(self.files, exports.beside_runs(self.results, self.study))
        facts_by_run = self.runs.set_index("run_id")[["digest", "commit", "hardware_id"]].astype(object)
        facts_by_run = facts_by_run.where(facts_by_run.notna(), None)
        page = {
            "schema": exports.SCHEMA,
            "notebook": self.notebook,
            "study": self.study,
            "executed": Path("notebooks", self.study, f"{self.notebook}.ipynb").as_posix(),
            "commit": provenance.commit(),
            "dirty": provenance.dirty(),
            "analysis": provenance.analysis_digest(self.notebook)[: provenance.SHORT],
            "runs": {
                run: facts | {"fingerprint": fingerprint.of_run(self.results / "runs" / run)}
                for run, facts in facts_by_run.to_dict("index").items()
            },
            "files": {name: fingerprint.of_file(self._place(name)) for name in sorted(evidence)},
            **{kind: dict(sorted(items.items())) for kind, items in self.items.items()},
        }  # fmt: skip
        page["fingerprint"] = exports.seal(page)
        stem = f"{self.study}-{self.notebook}" if self.study else self.notebook
        atomic.write_text(self.results / exports.FOLDER / f"{stem}.json", exports.text(page))
        if self.results != paths.results():
            return f"Nothing is exported: these are the runs of the set {self.results.name}."
        return (
            f"Exported: {counted(len(self.items['tables']), 'table')}, {counted(len(self.items['figures']), 'figure')} "
            f"({exports.FOLDER}/{stem}.json, {page['fingerprint'][: provenance.SHORT]})."
        )

    def _place(self, name: str) -> Path:
        return self.outside[name] if name.startswith(exports.PROFILE) else exports.place(name, self.results)

    def _add(
        self, kind: str, name: str, caption: str, data: pd.DataFrame, runs: Iterable[str] | None, path: Path,
        details: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Add the table or figure to the page; `runs` by default those in the columns of run ids of `data`."""
        name = self.name(name)
        if name in self.items[kind]:
            raise ExportError(f"{self.notebook} exports two {kind} of the name {name}")
        if runs is None and (columns := _of_runs(data)):
            runs = data[columns].melt().value.explode().dropna()
        order = {run: number for number, run in enumerate(self.runs.run_id)}
        run_ids = set(order if runs is None else runs)
        if foreign := sorted(run_ids - order.keys()):
            raise ExportError(f"{name} rests on runs that {self.notebook} did not read: {', '.join(foreign)}")
        machines = self.runs.hardware_id[self.runs.run_id.isin(run_ids)]
        if sets := identity.imported_sets(machines):
            caption = f"{caption.rstrip('.')} (imported, not measured here: {', '.join(sets)})."
        self.items[kind][name] = {
            "caption": caption,
            "runs": sorted(order[run] for run in run_ids),
            "files": {path.relative_to(self.results).as_posix(): fingerprint.of_file(path)},
            **{key: value for key, value in details.items() if value},
        }


def _of_runs(data: pd.DataFrame) -> list[str]:
    """The columns that hold run ids."""
    return [column for column in data if column in BEHIND or column.endswith("_runs")]


def _csv(data: pd.DataFrame) -> str:
    joined = {
        column: data[column].map(lambda ids: " ".join(ids) if isinstance(ids, tuple | list) else ids)
        for column in _of_runs(data)
    }
    return data.assign(**joined).to_csv(index=False, lineterminator="\n")


def _described(data: pd.DataFrame, **changes: str) -> Table:
    table = data.attrs.get(KEY) or Table("", "")
    return replace(table, **{key: value for key, value in changes.items() if value})


def stacked(frames: Mapping[Any, pd.DataFrame], *columns: str) -> pd.DataFrame:
    """The concatenated frames, with their keys in `columns` (default: study); a key is a tuple where there are several."""
    names = columns or ("study",)
    labelled = []
    for key, frame in frames.items():
        values = key if isinstance(key, tuple) else (key,)
        labelled += [frame.assign(**dict(zip(names, values, strict=True)))] * bool(len(frame))
    return pd.concat(labelled, ignore_index=True) if labelled else next(iter(frames.values()), pd.DataFrame())
