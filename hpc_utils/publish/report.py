"""The report: executed notebooks, and what they rest on, bound into one HTML file that needs no network at all."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpc_utils.records.atomic import write_text

from .evidence import Evidence
from .page.anchors import slug, unique
from .page.chapter import Binding, ReportError, chapter_of, name_of, read, tell_apart
from .page.exporter import exporter
from .page.parts import Parts, parts_of

__all__ = ["ReportError", "write_report"]

PAGE = Path(__file__).parent / "page"
STYLES = ("page.css", "parts.css")
SCRIPTS = ("page.js", "lookup.js")
# The page's own anchors.
RESERVED = {
    "top", "main", "contents", "menu", "show-code", "zoom", "stale", "numbers", "figures", "tables", "runs", "evidence",
}  # fmt: skip


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

    `facts` stand under the title: where the numbers come from. With `evidence` there are numbers, figures, tables and runs to
    look up, with links to their files, and on top whatever is stale. Refuses (ReportError) what is not a notebook.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank: spares 0.7 s
    import jinja2
    from markupsafe import Markup

    output = Path(output).absolute()
    notebooks = [(path, read(path)) for path in chapters]
    names = [name_of(path, notebook) for path, notebook in notebooks]
    taken = set(RESERVED)
    anchors = list(unique((slug(name) for name in names), taken))
    by_file = {path.resolve(): anchor for (path, _), anchor in zip(notebooks, anchors, strict=True)}
    parts = parts_of(evidence, output, by_file) if evidence else Parts()
    taken |= parts.places
    by_name = dict(zip(reversed(names), reversed(anchors), strict=True))  # of two with one name, the first
    export = exporter()
    bound = []
    for (path, notebook), name, anchor in zip(notebooks, names, anchors, strict=True):
        binding = Binding(export, by_name, taken, parts.places, parts.figures_of(anchor))
        bound.append(chapter_of(notebook, path, name, anchor, binding))
    tell_apart(bound)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(PAGE), autoescape=True)
    for chapter in bound:
        chapter.body, chapter.reason = Markup(chapter.body), Markup(chapter.reason)
    page = environment.get_template("page.html.j2").render(
        title=title,
        subtitle=subtitle,
        facts=facts,
        chapters=bound,
        labels={chapter.anchor: chapter.label for chapter in bound},
        parts=parts,
        embedded=Markup(parts.embedded),
        css=Markup("\n".join((PAGE / name).read_text(encoding="utf-8") for name in STYLES)),
        js=Markup("\n".join((PAGE / name).read_text(encoding="utf-8") for name in SCRIPTS)),
    )
    write_text(output, page)
    return output
