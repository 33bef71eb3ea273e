"""The report: executed notebooks, and the tables and runs behind them, as one HTML file that needs no network."""

from __future__ import annotations

import base64
import functools
import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
import pandas as pd
from markupsafe import Markup

from hpc_utils import paths, provenance, records
from hpc_utils.analyze import anomalies, points, precision, scaling, targets
from hpc_utils.publish import exports, formatting, tables
from hpc_utils.publish.address import relative
from hpc_utils.records.atomic import write_text
from hpc_utils.records.identity import task
from hpc_utils.records.study import StudyIndex, StudyRun

from .chapter import FOLDER, ReportError, export_chapter, unique
from .lookup import Evidence, Lookup, gather

RESERVED = {"top", "main", "contents", "zoom", "stale", "tables", "figures", "runs"}  # the page's own anchors


class Head(NamedTuple):
    """What a study reached.

    Attributes:
        facts: where the numbers come from. outcome: as of `scaling.outcome`. targets: as of `targets.judge`, of its curves.
        findings: as of `anomalies.find_anomalies`. reached: as of `points.unit_rates` and `points.learned`. precision: what the study asks for and reached, in words; "" without one.
    """

    index: StudyIndex
    facts: Mapping[str, str]
    outcome: Sequence[tables.Row]
    targets: Sequence[tables.Row]
    findings: Sequence[tables.Row]
    reached: Sequence[tables.Row] = ()
    precision: str = ""


def read_head(record_set: records.Records, index: StudyIndex) -> Head:
    """The head of the report on the study `index`, of whose runs `record_set` has all."""
    study_records = record_set.only(index.run_ids)
    runs = study_records.runs
    judged = targets.judge(scaling.efficiency(runs), index.scaling_targets)
    frames = (
        _named(scaling.outcome(runs, study_records.epochs)),
        _named(judged[judged.runs.map(len) > 0]),
        anomalies.find_anomalies(runs),
        pd.concat([points.unit_rates(runs), points.learned(runs, study_records.epochs)]),
    )
    commits = runs.commit.str[: provenance.SHORT] + runs.dirty.map({True: " (modified)"}).fillna("")
    columns = {"device": runs.device_name, "commit": commits, "code digest": runs.digest, "torch": runs.torch}
    ends = sorted(runs.started)[:: max(len(runs) - 1, 1)]
    facts = {
        f"runs{index.name and ' of the study'}": f"{len(runs)} of {len(index.run_ids)} complete",
        "measured (UTC)": " to ".join(time[:16].replace("T", " ") for time in ends),
        **{name: ", ".join(sorted(set(column.dropna()))) for name, column in columns.items()},
    }
    precise = precision.sentence(precision.headline_ratios(study_records, index), index.precision)
    return Head(index, facts, *(frame.to_dict("records") for frame in frames), precise)


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with `curve_name`."""
    return rows.assign(curve_name=scaling.curve_names(rows))


def bind(results: str | Path, study: str = "", output: Path | None = None) -> Path:
    """Write the reports of a result set, its folder or name, from its executed chapters; returns the path of the one
    asked for.

    Each study has `report/STUDY/index.html`. `report/index.html` is that of a set's only study, or lists the studies.
    Of a `study` its own and the latter are written; with `output` nothing but the one asked for.

    Raises:
        UnknownStudy: the study was never run with these results. NoResultSet: there are no runs.
    """
    results = paths.result_set(results)
    record_set = records.load(results)
    exported = exports.read_exports(results)
    reports = results / "report"
    if output:
        pages = {study: output}
    else:
        names = [study] if study else [index.name for index in records.studies(results)]
        pages = {name: reports / name / "index.html" for name in names} | {"": reports / "index.html"}
    heads: dict[str, Head] = {}
    for name, page in pages.items():
        evidence = gather(results, record_set, exported, name)
        for index in evidence.studies:
            heads[index.name] = heads.get(index.name) or read_head(record_set, index)
        heads_by_page = {reports / index.name / "index.html": heads[index.name] for index in evidence.studies}
        if len(heads_by_page) == 1:
            write_report(page, *heads_by_page.values(), evidence)
        else:
            runs = [StudyRun(run_id=run) for run in evidence.series]
            overview = read_head(record_set, StudyIndex(title=f"Studies in {results.name}", runs=runs))
            heads_of_runs = [*heads_by_page.values()]  # findings are not across studies
            in_studies = {run for index in evidence.studies for run in index.run_ids}
            if others := [run for run in runs if run.run_id not in in_studies]:
                heads_of_runs.append(read_head(record_set, StudyIndex(title="", runs=others)))
            findings = [finding for head in heads_of_runs for finding in head.findings]
            findings.sort(key=lambda finding: list(anomalies.FINDINGS).index(finding["finding"]))
            overview = overview._replace(findings=findings)
            listed = [
                (relative(path, page.parent) if path.is_file() else "", study_head)
                for path, study_head in heads_by_page.items()
            ]
            write_report(page, overview, evidence, listed)
    return pages[study]


def write_report(output: Path, head: Head, evidence: Evidence, studies: Sequence[tuple[str, Head]] = ()) -> Path:
    """Write the chapters of `evidence`, in this order, with its tables, figures and runs to look up, as one self-contained page;
    returns its path.

    `studies`: (link, head) of each study that it lists instead of its own outcome; "": there is no report yet.

    Raises:
        ReportError: a chapter is not a notebook.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank: spares 0.7 s
    output = Path(output).absolute()
    used_anchors = set(RESERVED)
    anchors = {path: unique(path.stem, used_anchors) for path in evidence.chapters}
    lookup = Lookup(evidence, output, anchors)
    by_name = {path.stem: anchor for path, anchor in reversed(anchors.items())}  # of two with one name, the first
    bound = [export_chapter(path, anchor, by_name, lookup.captions) for path, anchor in anchors.items()]
    titles = [chapter.title for chapter in bound]
    for chapter in bound:
        if titles.count(chapter.title) > 1:
            chapter.label = f"{chapter.title} ({chapter.folder})"
    script = (FOLDER / "page.js").read_text()
    page = _templates().get_template("page.html.j2").render(
        head=head, studies=studies, task=task, baseline_text=scaling.baseline_text, quantity=formatting.quantity, chapters=bound, lookup=lookup, evidence=evidence,
        css=Markup((FOLDER / "page.css").read_text()), js=Markup(script),
        js_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip
    write_text(output, page)
    return output


@functools.cache
def _templates() -> jinja2.Environment:
    """Compiled once for all pages."""
    return jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True)
