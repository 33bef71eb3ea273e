"""One executed notebook as a chapter of the page: what it is called, what it ran with, how it ended, and its body."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .figures import caption_figures, frame_figures
from .order import drop, mark_errors, no_network, order_headings, point_links
from .tables import set_table

if TYPE_CHECKING:
    from nbconvert.exporters import HTMLExporter
    from nbformat import NotebookNode

    from .numbers import Number

PARAMETERS = {"parameters", "injected-parameters"}
ERROR_MARKS = "papermill-error-cell-tag"  # papermill's own notices, which the page says better


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


@dataclass(frozen=True)
class Binding:
    """What a chapter must know of the page that it becomes part of.

    Attributes:
        anchors: of all chapters, by their names. taken: the page's anchors so far, which chapters add to.
        places: anchors of numbers, figures and runs. figures: what was exported, by name.
    """

    exporter: HTMLExporter
    anchors: Mapping[str, str]
    taken: set[str]
    places: Collection[str] = ()
    figures: Mapping[str, Number] = field(default_factory=dict)


def read(path: Path) -> NotebookNode:
    """The notebook in `path`; `ReportError` if there is none."""
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


def name_of(path: Path, notebook: NotebookNode) -> str:
    """The notebook's own name: a run keeps its copy as `notebook.ipynb`, which tells nothing."""
    return Path(notebook.metadata.get("papermill", {}).get("input_path") or path).stem


def chapter_of(notebook: NotebookNode, path: Path, name: str, anchor: str, binding: Binding) -> Chapter:
    """The notebook from the file `path` as the page's chapter `anchor`."""
    from bs4 import BeautifulSoup

    notebook.cells = [cell for cell in notebook.cells if ERROR_MARKS not in _tags(cell)]
    try:
        html, _ = binding.exporter.from_notebook_node(notebook, {"metadata": {"path": str(path.parent)}})
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
        drop(banner.find_all(["h1"]))
        chapter.reason += banner.extract().decode_contents()
    if first := soup.select_one(".prose h1"):
        chapter.title = first.extract().get_text().strip() or name
    no_network(soup)
    order_headings(soup, chapter, binding.taken)
    mark_errors(soup, chapter)
    point_links(soup, chapter.anchor, binding.anchors, binding.places)
    frame_figures(soup, chapter.title)
    caption_figures(soup, binding.figures)
    for table in soup.find_all("table"):
        set_table(soup, table)
    drop(
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


def tell_apart(chapters: list[Chapter]) -> None:
    """Label chapters in the navigation; two of one title by the parameters in which they differ."""
    for chapter in chapters:
        others = [other.parameters for other in chapters if other.title == chapter.title]
        differ = [
            f"{name} {parameter.value}"
            for name, parameter in chapter.parameters.items()
            if any(name in other and other[name].value != parameter.value for other in others)
        ]
        chapter.label = f"{chapter.title} ({', '.join(differ[:2])})" if differ else chapter.title
