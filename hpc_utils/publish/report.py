"""The report: executed notebooks bound into one HTML file that opens from disk, with no network at all."""

from __future__ import annotations

import ast
import base64
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils.records.atomic import write_text

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag
    from nbconvert.exporters import HTMLExporter
    from nbformat import NotebookNode

PAGE = Path(__file__).parent / "page"
PARAMETERS = {"parameters", "injected-parameters"}
ERROR_MARKS = "papermill-error-cell-tag"  # papermill's own notices, which the page says better
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
# A widget or a script would need libraries from the network; the same output's other forms do not.
SHOWN = ["text/html", "text/markdown", "image/svg+xml", "text/latex", "image/png", "image/jpeg", "text/plain"]
NO_WORDS = "No description has been provided"  # nbconvert's
RESERVED = {"top", "main", "contents", "menu", "show-code", "zoom"}  # the page's own anchors
NUMBER = re.compile(r"[-+−]?(\d[\d,]*\.?\d*|\.\d+|inf)(e[-+]?\d+)?\s*%?|nan|<na>|nat|none|\.\.\.|", re.IGNORECASE)


class ReportError(ValueError):
    """A chapter cannot be shown: it is missing, or it is no notebook."""

    exit_code = 2


@dataclass(frozen=True)
class Parameter:
    """A notebook's parameter: the value that it ran with, and the default where that was another one."""

    value: str
    default: str = ""


@dataclass
class Chapter:
    """One notebook, as the page shows it."""

    anchor: str
    title: str
    label: str  # the title in the navigation
    source: str  # the notebook's name, when it was executed, how long it took
    failed: bool
    parameters: dict[str, Parameter]
    body: str = ""
    reason: str = ""  # HTML: what the launcher found when the run failed
    sections: list[tuple[str, str]] = field(default_factory=list)  # anchor, heading
    errors: list[tuple[str, str]] = field(default_factory=list)  # anchor, name of the exception


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

    notebooks = [(path, _read(path)) for path in chapters]
    names = [_name(path, notebook) for path, notebook in notebooks]
    taken = set(RESERVED)
    anchors = list(_unique((_slug(name) for name in names), taken))
    by_name = dict(zip(reversed(names), reversed(anchors), strict=True))  # of two with one name, the first
    exporter = _exporter()
    bound = [
        _chapter(notebook, path, name, anchor, by_name, exporter, taken)
        for (path, notebook), name, anchor in zip(notebooks, names, anchors, strict=True)
    ]
    _tell_apart(bound)
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


# --- From a notebook to a chapter ---


def _read(path: Path) -> NotebookNode:
    import nbformat

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ReportError(f"chapter {path} does not exist: execute the notebook first, or leave it out") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"chapter {path} cannot be read ({error}): give an executed .ipynb file") from error
    try:
        notebook = nbformat.reads(text, as_version=4)
        if not all({"cell_type", "source", "metadata"} <= cell.keys() for cell in notebook.cells):
            raise ValueError("its cells are none")
    except Exception as error:  # nbformat raises whatever a foreign file makes it stumble over
        raise ReportError(f"chapter {path} is not a notebook ({error}): give an executed .ipynb file") from error
    return notebook


def _name(path: Path, notebook: NotebookNode) -> str:
    """The notebook's own name: a run keeps its copy as `notebook.ipynb`, which tells nothing."""
    return Path(notebook.metadata.get("papermill", {}).get("input_path") or path).stem


def _chapter(
    notebook: NotebookNode,
    path: Path,
    name: str,
    anchor: str,
    anchors: Mapping[str, str],
    exporter: HTMLExporter,
    taken: set[str],
) -> Chapter:
    from bs4 import BeautifulSoup

    notebook.cells = [cell for cell in notebook.cells if ERROR_MARKS not in _tags(cell)]
    try:
        html, _ = exporter.from_notebook_node(notebook, {"metadata": {"path": str(path.parent)}})
    except Exception as error:
        error.add_note(f"while showing {path}")
        raise
    soup = BeautifulSoup(html, "html.parser")
    chapter = Chapter(
        anchor=anchor,
        title=name,
        label="",
        source=_source(name, notebook),
        failed=_failed(notebook),
        parameters=_parameters(notebook),
    )
    for banner in soup.select(".run-failed"):
        _drop(banner.find_all(["h1"]))
        chapter.reason += banner.extract().decode_contents()
    if first := soup.select_one(".prose h1"):
        chapter.title = first.extract().get_text().strip() or name
    _no_network(soup)
    _order_headings(soup, chapter, taken)
    _mark_errors(soup, chapter)
    _point_links(soup, chapter.anchor, anchors)
    _frame_figures(soup, chapter.title)
    for table in soup.find_all("table"):
        _set_table(soup, table)
    _drop(
        block
        for block in soup.select("div.prose")
        if not block.get_text(strip=True) and not block.find(["img", "math"])
    )
    chapter.body = str(soup)
    return chapter


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def _source(name: str, notebook: NotebookNode) -> str:
    told = notebook.metadata.get("papermill", {})
    parts = [f"{name}.ipynb"]
    if started := told.get("start_time"):
        parts.append(f"executed {datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC")
    if seconds := told.get("duration"):
        minutes, seconds = divmod(round(seconds), 60)
        parts.append(f"{minutes} min {seconds} s" if minutes else f"{seconds} s")
    return ", ".join(parts)


def _failed(notebook: NotebookNode) -> bool:
    """As papermill says; an error that nobody expected counts too, whoever executed the notebook."""
    return bool(notebook.metadata.get("papermill", {}).get("exception")) or any(
        output.output_type == "error"
        for cell in notebook.cells
        if cell.cell_type == "code" and "raises-exception" not in _tags(cell)
        for output in cell.get("outputs", ())
    )


def _parameters(notebook: NotebookNode) -> dict[str, Parameter]:
    """What the parameter cells assign; the injected one, which comes later, has the last word."""
    found: dict[str, Parameter] = {}
    for cell in notebook.cells:
        if cell.cell_type != "code" or not _tags(cell) & PARAMETERS:
            continue
        for name, value in _assignments(cell.source):
            before = found.get(name)
            found[name] = Parameter(value, before.value if before and before.value != value else "")
    return found


def _assignments(source: str) -> Iterator[tuple[str, str]]:
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return
    for statement in statements:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                yield name, str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)


def _tell_apart(chapters: list[Chapter]) -> None:
    """Label chapters in the navigation; two of one title by the parameters in which they differ."""
    for chapter in chapters:
        others = [other.parameters for other in chapters if other.title == chapter.title]
        differ = [
            f"{name} {parameter.value}"
            for name, parameter in chapter.parameters.items()
            if any(name in other and other[name].value != parameter.value for other in others)
        ]
        chapter.label = f"{chapter.title} ({', '.join(differ[:2])})" if differ else chapter.title


# --- From cells to HTML ---


def _exporter() -> HTMLExporter:
    from nbconvert.exporters.html import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
    from traitlets.config import Config

    class Renderer(IPythonRenderer):
        """Markdown whose formulas are MathML, which browsers draw by themselves."""

        def inline_math(self, body: str) -> str:
            return _mathml(body, "inline")

        def block_math(self, body: str) -> str:
            return f'<span class="formula">{_mathml(body, "block")}</span>'

        def latex_environment(self, name: str, body: str) -> str:
            return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")

    class Exporter(HTMLExporter):
        def default_filters(self) -> Iterator[tuple[str, Any]]:
            from jinja2 import pass_context

            @pass_context
            def markdown2html(context: Any, source: str) -> str:
                renderer = Renderer(
                    escape=False,
                    embed_images=True,
                    exclude_anchor_links=True,
                    attachments=context.get("cell", {}).get("attachments", {}),
                    path=context["resources"]["metadata"]["path"],
                )
                return _whole(MarkdownWithMath(renderer=renderer).render(source))

            yield from super().default_filters()
            yield "markdown2html", markdown2html
            yield "whole", _whole

    return Exporter(
        config=Config(
            {
                "NbConvertBase": {"display_data_priority": SHOWN},
                "CoalesceStreamsPreprocessor": {"enabled": True},  # of a progress bar only its last state
            }
        ),
        template_name="basic",
        template_file="chapter.html.j2",
        extra_template_paths=[str(PAGE)],
    )


def _whole(html: str) -> str:
    """`html` with every element closed, so that it ends where its cell does."""
    from bs4 import BeautifulSoup

    return str(BeautifulSoup(html, "html.parser"))


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert

    try:
        return convert(formula.strip(), display=display)
    except Exception:  # any formula that it does not understand; the source is readable too
        return f"<code>{escape(formula.strip())}</code>"


# --- Order in a chapter's HTML ---


def _no_network(soup: BeautifulSoup) -> None:
    """Whatever would be loaded from elsewhere becomes a line that says so."""
    _drop(soup.find_all("link"))
    _drop(soup.select("style[scoped]"))  # pandas: the page has its own look for tables
    for element in soup.find_all(src=True):
        source = element["src"]
        if source.startswith("data:"):
            continue
        note = soup.new_tag("span", attrs={"class": "absent"})
        note.string = f"{element.get('alt') or element.name} (not in this page: {source})"
        element.replace_with(note)
    for element in soup.find_all(srcset=True):
        del element["srcset"]


def _order_headings(soup: BeautifulSoup, chapter: Chapter, taken: set[str]) -> None:
    """Headings below the chapter's own, with anchors that are the page's only ones; collects the sections."""
    headings = soup.find_all(HEADINGS)
    slugs = _unique((f"{chapter.anchor}--{_slug(heading.get_text())}" for heading in headings), taken)
    for heading, slug in zip(headings, slugs, strict=True):
        section = heading.name in ("h1", "h2") and not heading.find_parent(class_="output")
        heading.name = f"h{min(6, max(3, int(heading.name[1]) + 1))}"
        heading["id"] = slug
        if section:
            chapter.sections.append((slug, heading.get_text().strip()))
    for element in soup.find_all(id=True):  # an output's own, which may come twice
        if element.name in HEADINGS:
            continue
        if element["id"] in taken:
            del element["id"]
        else:
            taken.add(element["id"])


def _mark_errors(soup: BeautifulSoup, chapter: Chapter) -> None:
    for number, error in enumerate(soup.select("div.error"), 1):
        error["id"] = f"{chapter.anchor}.error-{number}"
        chapter.errors.append((error["id"], error.strong.get_text()))


def _point_links(soup: BeautifulSoup, anchor: str, anchors: Mapping[str, str]) -> None:
    """Links between chapters lead to their places here; those to files beside the notebook would lead nowhere."""
    ids = {element["id"] for element in soup.find_all(id=True)}
    for link in soup.find_all("a", href=True):
        target, _, place = link["href"].partition("#")
        if not target and place in ids:
            continue
        if re.match(r"(https?|mailto|data):", target):
            continue
        chapter = anchor if not target else anchors.get(Path(target).stem) if target.endswith(".ipynb") else None
        if chapter:
            link["href"] = f"#{chapter}--{_slug(place)}" if place else f"#{chapter}"
        else:
            link.unwrap()


def _frame_figures(soup: BeautifulSoup, title: str) -> None:
    """Every picture of an output is a button that enlarges it, and has words for who cannot see it."""
    heading, number = title, 0
    for element in soup.find_all([*HEADINGS, "img"]):
        if element.name != "img":
            heading, number = element.get_text().strip(), 0
            continue
        if not element.find_parent(class_="output") or element.find_parent(["a", "button", "table"]):
            continue
        number += 1
        if element.get("alt", "").startswith(NO_WORDS) or not element.get("alt"):
            element["alt"] = f"Figure {number} of “{heading}”"
        if not element.get("width") and (size := _pixels(element.get("src", ""))):
            element["width"], element["height"] = size
        element.wrap(soup.new_tag("button", attrs={"class": "figure", "type": "button", "title": "Enlarge"}))


def _pixels(source: str) -> tuple[int, int] | None:
    """Size of a bitmap in a data URI. Told beforehand, the text below does not jump while the page loads."""
    from PIL import Image

    try:
        return Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).size
    except (ValueError, OSError):  # an SVG
        return None


def _set_table(soup: BeautifulSoup, table: Tag) -> None:
    """Put `table` into a box that scrolls; align its numbers; mark the header row that can sort it."""
    table.wrap(soup.new_tag("div", attrs={"class": "box"}))
    del table["border"]
    header = _one_header(table.thead.find_all("tr") if table.thead else [])
    body = [row.find_all(["th", "td"]) for row in (table.tbody.find_all("tr") if table.tbody else [])]
    for cell in table.find_all("th"):
        cell["scope"] = "row" if cell.find_parent("tbody") else "col"
    for row in table.find_all("tr"):
        del row["style"]
    # Counted from the right: on the left pandas leaves out the cells of an index that repeats.
    for place in range(-1, -1 - min(map(len, body), default=0), -1):
        column = [row[place] for row in body]
        if all(NUMBER.fullmatch(cell.get_text().strip()) for cell in column):
            heads = [row[place] for row in header if len(row) >= -place and not _spans(row)]
            for cell in column + heads:
                cell["class"] = [*cell.get("class", []), "number"]
    names = header[-1] if header else []
    regular = not any(len(row) != len(names) or _spans(row) for row in [names, *body])
    if names and regular and len(body) > 1 and table.find_parent(class_="output"):
        names[0].parent["class"] = "sorts"


def _one_header(rows: list[Tag]) -> list[list[Tag]]:
    """The header's cells. pandas gives an index's name a row of its own: move it up into the gap above."""
    cells = [row.find_all("th") for row in rows]
    if len(rows) != 2 or len(cells[0]) != len(cells[1]):
        return cells
    pairs = list(zip(*cells, strict=True))
    if any(upper.get_text(strip=True) and lower.get_text(strip=True) for upper, lower in pairs):
        return cells
    for upper, lower in pairs:
        upper.extend(lower.extract().contents)
    rows[1].extract()
    return cells[:1]


def _spans(cells: list[Tag]) -> bool:
    return any(cell.get(span, "1") != "1" for cell in cells for span in ("rowspan", "colspan"))


def _drop(elements: Iterable[Tag]) -> None:
    for element in list(elements):
        element.decompose()


def _slug(text: str) -> str:
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-") or "section"


def _unique(slugs: Iterable[str], taken: set[str]) -> Iterator[str]:
    """The same slugs, told apart by a number where they are in `taken`, which they join."""
    for slug in slugs:
        name, number = slug, 1
        while name in taken:
            number += 1
            name = f"{slug}-{number}"
        taken.add(name)
        yield name
