"""The report: executed notebooks, and the tables and runs behind them, as one HTML file that needs no network."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import paths, provenance, records
from hpc_utils.records.atomic import write_text

from .chapter import FOLDER, Exporter, ReportError, name_of, read, unique

if TYPE_CHECKING:
    import pandas as pd

    from .lookup import Evidence

__all__ = ["ReportError", "bind", "write_report"]

RESERVED = {"top", "main", "contents", "zoom", "stale", "tables", "figures", "runs"}  # the page's own anchors


def bind(results: str | Path, study: str = "", output: Path | None = None) -> Path:
    """Write `report/index.html` (or `output`) of a result set, its folder or name, from its executed chapters; returns its path.

    `study`: only the chapters of this study, their runs and its own.

    Raises:
        UnknownStudy: the study was never run with these results. NoResultSet: there are no runs.
    """
    from .lookup import gather

    results = paths.result_set(results)
    folder = results / "notebooks"
    if study:
        studies = [records.read_study(study, results)]
        names = [f"{chapter.notebook}.ipynb" for chapter in studies[0].chapters]
        # A chapter that was executed on all runs of the set is above the studies' own.
        places = [(folder / study / name, folder / name) for name in names]
        chapters = [path for pair in places if (path := next(filter(Path.is_file, pair), None))]
    else:
        studies = records.studies(results)
        chapters = sorted(folder.rglob("*.ipynb"), key=lambda path: (path.name, path))
    evidence = gather(results, study, chapters)
    title, subtitle = f"Results: {results.name}", "; ".join(one.title for one in studies)
    if len(studies) == 1:
        title, subtitle = studies[0].title, studies[0].about
    runs, refused = evidence.found.runs, evidence.series.keys() & evidence.found.refused
    shown = facts(runs[runs.run_id.isin(evidence.series)], len(refused))
    output = output or results / "report" / "index.html"
    return write_report(chapters, output, title=title, subtitle=subtitle, facts=shown, evidence=evidence)


def facts(runs: pd.DataFrame, refused: int) -> dict[str, str]:
    """The head of the report: where the numbers of these runs come from."""
    if runs.empty:
        return {"runs": "none is complete"}
    commits = runs.commit.str[: provenance.SHORT] + runs.dirty.map({True: " (modified)"}).fillna("")
    shown = {"device": runs.device_name, "commit": commits, "code digest": runs.digest, "torch": runs.torch}
    first, last = (time[:16].replace("T", " ") for time in (min(runs.started), max(runs.started)))
    return {
        "runs": f"{len(runs)} complete, {refused} refused",
        "measured": f"{first} to {last} UTC",
        **{name: ", ".join(sorted(set(column.dropna()))) for name, column in shown.items()},
    }


def write_report(
    chapters: Sequence[Path],
    output: Path,
    *,
    title: str,
    subtitle: str = "",
    facts: Mapping[str, str] = {},
    evidence: Evidence | None = None,
) -> Path:
    """Write the executed notebooks `chapters`, in this order, as one self-contained page; returns its path.

    Args:
        facts: shown under the title: where the numbers come from.
        evidence: tables, figures and runs to look up, with links to their files, and on top what is stale.

    Raises:
        ReportError: a chapter is missing, or is not a notebook.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank: spares 0.7 s
    import jinja2
    from itables import options
    from itables.javascript import generate_init_offline_itables_html
    from markupsafe import Markup

    from .lookup import Lookup

    output, taken = Path(output).absolute(), set(RESERVED)
    notebooks = [(path, read(path)) for path in chapters]
    names = [name_of(path, notebook) for path, notebook in notebooks]
    anchors = [unique(name, taken) for name in names]
    by_path = {path.resolve(): anchor for path, anchor in zip(chapters, anchors, strict=True)}
    lookup = Lookup(evidence, output, by_path) if evidence else None
    by_name = dict(zip(reversed(names), reversed(anchors), strict=True))  # of two with one name, the first
    export = Exporter(by_name, lookup.captions if lookup else {})
    bound = [export(*one, anchor) for one, anchor in zip(notebooks, anchors, strict=True)]
    titles = [chapter.title for chapter in bound]
    for chapter in bound:
        if titles.count(chapter.title) > 1:
            chapter.label = f"{chapter.title} ({chapter.folder})"
    # DataTables as itables bundles it for pages without network: its style, and its module as a promise of the window.
    init = generate_init_offline_itables_html(options.dt_bundle)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True)
    page = environment.get_template("page.html.j2").render(
        title=title, subtitle=subtitle, facts=facts, chapters=bound, tables=lookup.tables if lookup else (),
        faults=evidence.faults if evidence else (), datatables=Markup(init),
        bundle=re.search(r"window\.(_itables_\w+)", init)[1],
        css=Markup((FOLDER / "page.css").read_text()), js=Markup((FOLDER / "page.js").read_text()),
    )  # fmt: skip
    write_text(output, page)
    return output
