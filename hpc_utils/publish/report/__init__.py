"""The report: executed notebooks, and the tables and runs behind them, as one HTML file that needs no network."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpc_utils.publish.evidence import Evidence
from hpc_utils.records.atomic import write_text

from . import lookup
from .chapter import FOLDER, Exporter, ReportError, name_of, read, unique

__all__ = ["ReportError", "write_report"]

RESERVED = {"top", "main", "contents", "zoom", "stale", "tables", "figures", "runs"}  # the page's own anchors


def write_report(
    chapters: Sequence[Path],
    output: Path,
    *,
    title: str,
    subtitle: str = "",
    facts: Mapping[str, str] = {},
    evidence: Evidence | None = None,
) -> Path:
    """Write the executed notebooks `chapters`, in this order, as one self-contained page; returns `output`.

    Args:
        facts: shown under the title: where the numbers come from.
        evidence: tables, figures and runs to look up, with links to their files, and on top what is stale.

    Raises:
        ReportError: a chapter is missing, or is not a notebook.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank: spares 0.7 s
    import jinja2
    from markupsafe import Markup

    output, taken = Path(output).absolute(), set(RESERVED)
    notebooks = {path: read(path) for path in chapters}
    names = {path: name_of(path, notebook) for path, notebook in notebooks.items()}
    anchors = {path: unique(name, taken) for path, name in names.items()}
    found = (
        lookup.of(evidence, output, {path.resolve(): anchor for path, anchor in anchors.items()})
        if evidence
        else None
    )
    by_name = {names[path]: anchors[path] for path in reversed(chapters)}  # of two with one name, the first
    export = Exporter(by_name, found)
    bound = [export(notebook, path, names[path], anchors[path]) for path, notebook in notebooks.items()]
    titles = [chapter.title for chapter in bound]
    for chapter in bound:
        if titles.count(chapter.title) > 1:
            chapter.label = f"{chapter.title} ({chapter.folder})"
    init = _datatables()
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDER), autoescape=True)
    page = environment.get_template("page.html.j2").render(
        title=title, subtitle=subtitle, facts=facts, chapters=bound, found=found, datatables=Markup(init),
        bundle=re.search(r"window\.(_itables_\w+)", init)[1],
        css=Markup((FOLDER / "page.css").read_text()), js=Markup((FOLDER / "page.js").read_text()),
    )  # fmt: skip
    write_text(output, page)
    return output


def _datatables() -> str:
    """DataTables as itables bundles it for pages without network: its style, and its module as a promise of the window."""
    from itables import options
    from itables.javascript import generate_init_offline_itables_html

    return generate_init_offline_itables_html(options.dt_bundle)
