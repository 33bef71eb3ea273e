"""The report: executed notebooks bound into one HTML file that opens from disk, with no network at all."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpc_utils.records.atomic import write_text

from .page.anchors import slug, unique
from .page.chapter import ReportError, chapter_of, name_of, read, tell_apart
from .page.exporter import exporter

__all__ = ["ReportError", "write_report"]

PAGE = Path(__file__).parent / "page"
RESERVED = {"top", "main", "contents", "menu", "show-code", "zoom"}  # the page's own anchors


def write_report(
    chapters: Sequence[Path],
    output: Path,
    *,
    title: str,
    subtitle: str = "",
    facts: Mapping[str, str] = {},
) -> Path:
    """Write the executed notebooks `chapters`, in this order, as one self-contained page; returns `output`.

    `facts` stand under the title: where the numbers come from. Refuses (ReportError) what is not a notebook.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank: spares 0.7 s
    import jinja2
    from markupsafe import Markup

    notebooks = [(path, read(path)) for path in chapters]
    names = [name_of(path, notebook) for path, notebook in notebooks]
    taken = set(RESERVED)
    anchors = list(unique((slug(name) for name in names), taken))
    by_name = dict(zip(reversed(names), reversed(anchors), strict=True))  # of two with one name, the first
    export = exporter()
    bound = [
        chapter_of(notebook, path, name, anchor, by_name, export, taken)
        for (path, notebook), name, anchor in zip(notebooks, names, anchors, strict=True)
    ]
    tell_apart(bound)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(PAGE), autoescape=True)
    for chapter in bound:
        chapter.body, chapter.reason = Markup(chapter.body), Markup(chapter.reason)
    page = environment.get_template("page.html.j2").render(
        title=title,
        subtitle=subtitle,
        facts=facts,
        chapters=bound,
        css=Markup((PAGE / "page.css").read_text(encoding="utf-8")),
        js=Markup((PAGE / "page.js").read_text(encoding="utf-8")),
    )
    write_text(output, page)
    return output
