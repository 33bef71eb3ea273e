"""Export one figure of a result set as PDF, SVG or PNG, with its data and its source."""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import toml_config
from hpc_utils.records import atomic, fingerprint

from . import exports, staleness
from .exports import Item

FORMATS = ("pdf", "svg", "png")
EMBEDDED = re.compile(r'<image[^>]*xlink:href="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)"')


class CannotExport(ValueError):
    """A figure cannot be exported; the message states the reason."""

    exit_code = 2


@dataclass(frozen=True)
class Figure:
    """A figure and its result set."""

    folder: Path
    drawn: Item
    page: dict

    @property
    def name(self) -> str:
        """`<set>:<name>`."""
        return f"{self.folder.name}:{self.drawn.name}"


def figures(folders: Iterable[Path]) -> list[Figure]:
    """All figures that the chapters of these sets exported, by set and name."""
    exported_figures = []
    for folder in folders:
        exported = exports.read_exports(folder)
        exported_figures += [
            Figure(folder, item, exported.pages[item.page]) for _, item in sorted(exported.figures.items())
        ]
    return exported_figures


def find_figure(name: str, among: Sequence[Figure]) -> Figure:
    """The figure `name`, or `<set>:<name>` where several sets have it.

    Raises:
        CannotExport: no figure has that name, or several have it.
    """
    having = [figure for figure in among if name in (figure.name, figure.drawn.name)]
    if not having:
        nearest_name = toml_config.nearest(
            name, [candidate for figure in among for candidate in (figure.name, figure.drawn.name)]
        )
        meant = f"did you mean {nearest_name}? " * bool(nearest_name)
        raise CannotExport(
            f"no figure is named {name!r}: {meant}`hpc export --list` lists them, `hpc chapter` draws them"
        )
    if len(having) > 1:
        raise CannotExport(f"several sets have {name!r}: choose {' or '.join(figure.name for figure in having)}")
    return having[0]


def write_figure(figure: Figure, output: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write the figure in `formats`, its data as CSV, and its caption and source as JSON, into `output`.

    Raises:
        CannotExport: unknown format, or the figure's files have changed since the chapter wrote them.
    """
    drawn = figure.drawn
    folder = figure.folder
    if unknown_formats := set(formats) - set(FORMATS):
        raise CannotExport(f"no format {', '.join(sorted(unknown_formats))}: choose from {', '.join(FORMATS)}")
    for path, digest in drawn.files.items():
        if not (folder / path).is_file() or fingerprint.of_file(folder / path) != digest:
            anew = staleness.remedy(folder, figure.page)
            raise CannotExport(f"{path} is not as {figure.page['notebook']} wrote it: {anew}")
    drawings = {kind: redrawn(folder / drawn.file, kind) for kind in formats}
    output.mkdir(parents=True, exist_ok=True)
    *paths, table, origin = (output / f"{drawn.name}.{kind}" for kind in (*drawings, "csv", "json"))
    for path, drawing in zip(paths, drawings.values(), strict=True):
        path.write_bytes(drawing)
    atomic.write_text(table, drawn.data)
    atomic.write_json(origin, source(figure))
    return [*paths, table, origin]


def source(figure: Figure) -> dict:
    """The caption and the source of the figure."""
    page = figure.page
    drawn = figure.drawn
    runs = [page["runs"][run] for run in drawn.runs]
    return {
        "figure": drawn.name,
        "caption": drawn.caption,
        "set": figure.folder.name,
        "notebook": page["notebook"],
        "study": page["study"],
        "drawn at commit": page["commit"],
        "measured at commits": sorted({run["commit"] for run in runs if run["commit"]}),
        "measured by code of digest": sorted({run["digest"] for run in runs}),
        "runs": list(drawn.runs),
        "files": dict(drawn.files),
    }


def redrawn(pdf: Path, kind: str) -> bytes:
    """The drawing in `pdf`: itself, as PNG with 300 pixels an inch, or as SVG with text as outlines, so that it needs no fonts.

    Raises:
        CannotExport: typst is not installed.
    """
    if kind == "pdf":
        return pdf.read_bytes()
    try:
        import typst
    except ImportError:
        raise CannotExport("SVG and PNG need typst: `pip install typst`, or choose --format pdf") from None
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(pdf, Path(folder) / "figure.pdf")
        page = Path(folder) / "page.typ"
        page.write_text('#set page(width: auto, height: auto, margin: 0pt)\n#image("figure.pdf")\n')
        image = typst.compile(str(page), format=kind, ppi=300)
    # Typst embeds the drawing as an image in an SVG page; other programs read the image alone more easily.
    return base64.b64decode(EMBEDDED.search(image.decode())[1]) if kind == "svg" else image
