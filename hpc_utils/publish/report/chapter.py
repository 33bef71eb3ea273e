"""An executed notebook as a chapter of the report: nbconvert with one template, Markdown with anchors and MathML."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbconvert.exporters.html import HTMLExporter
    from nbformat import NotebookNode

FOLDER = Path(__file__).parent
ERROR_NOTICE = "papermill-error-cell-tag"  # papermill's own cells about a failure, which the page shows in its head
# Widgets and scripts would need the network; the same output's other forms do not.
SHOWN = ["text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain"]


class ReportError(ValueError):
    """A chapter cannot be shown: it is not a notebook."""

    exit_code = 2


@dataclass
class Chapter:
    """One notebook, as the page shows it."""

    anchor: str
    folder: str  # of the notebook: distinguishes chapters with the same title
    source: str  # the notebook's name, when it was executed, how long it took
    parameters: Mapping[str, Any]
    failed: bool
    error: str = ""  # the name of the first exception
    title: str = ""
    label: str = ""  # the title in the navigation
    body: str = ""
    sections: list[tuple[str, str]] = field(default_factory=list)  # anchor, heading
    used_anchors: set[str] = field(default_factory=set)  # anchors so far


def read_notebook(path: Path) -> NotebookNode:
    """The notebook in `path`.

    Raises:
        ReportError: there is none.
    """
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises whatever a foreign file causes
        raise ReportError(f"chapter {path} is not a notebook ({error}): execute its notebook again") from None


def slug(text: str) -> str:
    """`text` as an anchor: lower case, dashes between words."""
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-") or "section"


def unique(text: str, used_anchors: set[str]) -> str:
    """The slug of `text`, with a number if it is in `used_anchors`, which it joins."""
    name = slug(text)
    number = 1
    while name in used_anchors:
        number += 1
        name = f"{slug(text)}-{number}"
    used_anchors.add(name)
    return name


def export_chapter(path: Path, anchor: str, anchors: Mapping[str, str], captions: Mapping[str, str]) -> Chapter:
    """The notebook in the file `path` as the chapter `anchor`.

    `anchors`: of all chapters, by the notebooks' names. `captions`: of figures, by their names.
    """
    notebook = read_notebook(path)
    cells = [cell for cell in notebook.cells if ERROR_NOTICE not in cell.metadata.get("tags", ())]
    notebook.cells = list(_shown(cells))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    errors = [(output, cell) for cell in code for output in cell.outputs if output.output_type == "error"]
    for number, (error, _) in enumerate(errors, 1):
        error.anchor = f"{anchor}.error-{number}"
    execution = notebook.metadata.get("papermill", {})
    unexpected = any("raises-exception" not in cell.metadata.get("tags", ()) for _, cell in errors)
    chapter = Chapter(
        anchor, path.parent.name, _source(path, execution), execution.get("parameters", {}),
        failed=bool(execution.get("exception")) or unexpected, error=errors[0][0].ename if errors else "",
    )  # fmt: skip
    page = {"chapter": chapter, "anchors": anchors, "captions": captions}
    body, resources = _html().from_notebook_node(notebook, {"metadata": {"path": str(path.parent)}, **page})
    chapter = resources["chapter"]  # nbconvert's copy, which the template's filters filled
    chapter.body = body
    chapter.title = chapter.title or path.stem
    chapter.label = chapter.title
    return chapter


@functools.cache
def _html() -> HTMLExporter:
    """nbconvert's exporter with our template, which is compiled once."""
    from jinja2 import pass_context
    from nbconvert.exporters.html import HTMLExporter
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor
    from traitlets.config import Config

    html = HTMLExporter(
        template_name="basic", template_file="chapter.html.j2", extra_template_paths=[str(FOLDER)],
        config=Config(NbConvertBase={"display_data_priority": SHOWN}),
    )  # fmt: skip
    html.register_preprocessor(CoalesceStreamsPreprocessor(), enabled=True)  # of a progress bar the last state
    html.register_filter("markdown2html", pass_context(_markdown))
    html.register_filter("whole", _whole)
    return html


def _shown(cells: Iterable[NotebookNode]) -> Iterator[NotebookNode]:
    """The cells, without the outputs on what the study does not measure, and without sections that have no other
    outputs."""
    heading = itertools.accumulate(cell.cell_type == "markdown" and cell.source.startswith("#") for cell in cells)
    for _, numbered in itertools.groupby(zip(heading, cells, strict=True), key=lambda pair: pair[0]):
        section = [cell for _, cell in numbered]
        code = [cell for cell in section if cell.get("outputs")]
        for cell in code:
            cell.outputs = [
                output
                for output in cell.outputs
                if not output.get("metadata", {}).get("text/markdown", {}).get("elsewhere")
            ]
        if not code or any(cell.outputs for cell in code):
            yield from section


def _source(path: Path, execution: Mapping[str, Any]) -> str:
    """`03_scaling.ipynb, executed 2026-11-24 20:01 UTC, 14 s`."""
    parts = [path.name]
    if started := execution.get("start_time"):
        parts.append(f"executed {datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC")
        parts.append(f"{execution.get('duration') or 0:.0f} s")
    return ", ".join(parts)


def _markdown(context: Any, source: str) -> str:
    """The filter `markdown2html`: headings become sections of the chapter, links lead to places in the page."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    resources = context["resources"]
    cell = context.get("cell", {})
    chapter: Chapter = resources["chapter"]
    is_banner = "run-failed" in cell.get("metadata", {}).get("tags", ())

    class Renderer(IPythonRenderer):
        def heading(self, text: str, level: int, **attributes: Any) -> str:
            from markupsafe import Markup

            plain = Markup(text).striptags()
            if is_banner:
                return f"<p><strong>{text}</strong></p>"
            if level == 1 and not chapter.title:
                chapter.title = plain
                return ""
            anchor = f"{chapter.anchor}--{unique(plain, chapter.used_anchors)}"
            level = min(max(level + 1, 3), 6)
            if level == 3:
                chapter.sections.append((anchor, plain))
            return f'<h{level} id="{anchor}">{text}</h{level}>\n'

        def link(self, text: str, url: str, title: str | None = None) -> str:
            target = _target(url, chapter.anchor, resources["anchors"])
            return super().link(text, target, title) if target else text

        def image(self, text: str, url: str, title: str | None = None) -> str:
            url = self._embed_image_or_attachment(url)
            return super().image(text, url, title) if url.startswith("data:") else _absent(text, url)

        def inline_math(self, body: str) -> str:
            return _mathml(body, "inline")

        def block_math(self, body: str) -> str:
            return f'<span class="formula">{_mathml(body, "block")}</span>'

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    renderer = Renderer(
        escape=False, embed_images=True, exclude_anchor_links=True, attachments=cell.get("attachments", {}),
        path=resources["metadata"]["path"],
    )  # fmt: skip
    return _whole(MarkdownWithMath(renderer=renderer).render(source), outside=False)


def _target(url: str, anchor: str, anchors: Mapping[str, str]) -> str:
    """The target in the page of a link from the chapter `anchor`; "" if it leads to a file that is not in the
    page."""
    if re.match(r"(https?|mailto|data):", url):
        return url
    file, _, place = url.partition("#")
    chapter = anchors.get(Path(file).stem) if file.endswith(".ipynb") else "" if file else anchor
    return f"#{chapter}--{slug(place)}" if chapter and place else f"#{chapter}" if chapter else ""


def _whole(html: str, outside: bool = True) -> str:
    """`html` with each element closed, so that it ends where its cell does.

    `outside`: from an output; then without styles, scripts, identifiers and what would be loaded from elsewhere.
    """
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, "html.parser")
    if outside:
        for element in soup(["link", "style", "script"]):
            element.decompose()
        for element in soup(src=lambda source: source and not source.startswith("data:")):
            element.replace_with(BeautifulSoup(_absent(element.name, element["src"]), "html.parser"))
        for element in soup(id=True):
            del element["id"]
    return str(soup)


def _absent(text: str, url: str) -> str:
    return f'<span class="absent">{escape(text)} (not in this page: {escape(url)})</span>'


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert

    try:
        return convert(formula.strip(), display=display)
    except Exception:  # it raises anything for a formula that it does not understand; the source is readable
        return f"<code>{escape(formula.strip())}</code>"
