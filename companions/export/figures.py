"""Export one figure of a result set as PDF, SVG or PNG, with its data and its source."""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpc_utils.publish import staleness
from hpc_utils.publish.exports import Exports, Item
from hpc_utils.records import atomic, fingerprint

FORMATS = ("pdf", "svg", "png")
EMBEDDED = re.compile(r'<image[^>]*xlink:href="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)"')


class CannotExport(ValueError):
    """A figure cannot be exported; the message states the reason."""

    exit_code = 2


def write_figure(exported: Exports, figure: Item, output: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write a figure of a set in `formats`, its data as CSV, and its caption and source as JSON, into `output`.

    Raises:
        CannotExport: unknown format, or the figure's files have changed since the chapter wrote them.
    """
    folder = exported.folder
    page = exported.pages[figure.page]
    if unknown_formats := set(formats) - set(FORMATS):
        raise CannotExport(f"no format {', '.join(sorted(unknown_formats))}: choose from {', '.join(FORMATS)}")
    for path, digest in figure.files.items():
        if not (folder / path).is_file() or fingerprint.of_file(folder / path) != digest:
            anew = staleness.remedy(folder, page)
            raise CannotExport(f"{path} is not as {page['notebook']} wrote it: {anew}")
    drawings = {kind: redrawn(folder / figure.file, kind) for kind in formats}
    output.mkdir(parents=True, exist_ok=True)
    *paths, table, origin = (output / f"{figure.name}.{kind}" for kind in (*drawings, "csv", "json"))
    for path, drawing in zip(paths, drawings.values(), strict=True):
        path.write_bytes(drawing)
    atomic.write_text(table, figure.data)
    atomic.write_json(origin, _source(exported, figure))
    return [*paths, table, origin]


def _source(exported: Exports, figure: Item) -> dict[str, Any]:
    """The caption and the source of the figure."""
    page = exported.pages[figure.page]
    runs = [page["runs"][run] for run in figure.runs]
    return {
        "figure": figure.name,
        "caption": figure.caption,
        "set": exported.folder.name,
        "notebook": page["notebook"],
        "study": page["study"],
        "drawn at commit": page["commit"],
        "measured at commits": sorted({run["commit"] for run in runs if run["commit"]}),
        "measured by code of digest": sorted({run["digest"] for run in runs}),
        "runs": list(figure.runs),
        "files": dict(figure.files),
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
