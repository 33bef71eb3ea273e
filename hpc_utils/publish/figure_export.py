"""Export one figure of a result set as PDF, SVG or PNG, with its data and its source."""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from hpc_utils import toml_config
from hpc_utils.records import atomic, fingerprint

from . import exports, staleness
from .exports import Item

FORMATS = ("pdf", "svg", "png")
EMBEDDED = re.compile(r'<image[^>]*xlink:href="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)"')
START = re.compile(r"(<svg\b[^>]*>)")


class CannotExport(ValueError):
    """A figure cannot be exported; the message states the reason."""

    exit_code = 2


@dataclass(frozen=True)
class Figure:
    """A figure and its result set."""

    folder: Path
    drawn: Item
    page: dict


def figures(folders: Iterable[Path]) -> list[Figure]:
    """All figures that the chapters of these sets exported, by set and name."""
    found = []
    for folder in folders:
        exported = exports.read(folder)
        found += [Figure(folder, one, exported.pages[one.page]) for _, one in sorted(exported.figures.items())]
    return found


def find(name: str, among: Sequence[Figure]) -> Figure:
    """The figure `name`, or `<set>:<name>` where several sets have it.

    Raises:
        CannotExport: no figure has that name, or several have it.
    """
    own, _, alone = name.rpartition(":")
    having = [one for one in among if one.drawn.name == alone and own in ("", one.folder.name)]
    if len(having) == 1:
        return having[0]
    if having:
        choice = " or ".join(f"{one.folder.name}:{alone}" for one in having)
        raise CannotExport(f"several result sets have a figure {alone}: write {choice}")
    if not among:
        raise CannotExport("no chapter has exported a figure: run `hpc chapter`")
    raise CannotExport(f"no figure {name!r}: {toml_config.hint(alone, {one.drawn.name for one in among})}")


def write(figure: Figure, output: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write the figure in `formats`, its data as CSV, and its caption and source as JSON, into `output`.

    Raises:
        CannotExport: unknown format, or the figure's files have changed since the chapter wrote them.
    """
    formats = list(dict.fromkeys(formats))
    if wrong := [kind for kind in formats or [""] if kind not in FORMATS]:
        raise CannotExport(f"no format {wrong[0]!r}: choose from {', '.join(FORMATS)}")
    drawn, folder = figure.drawn, figure.folder
    for path, digest in drawn.files.items():
        if not (folder / path).is_file() or fingerprint.of_file(folder / path) != digest:
            anew = staleness.remedy(folder, figure.page)
            raise CannotExport(f"{path} is not as {figure.page['notebook']} wrote it: {anew}")
    output.mkdir(parents=True, exist_ok=True)
    written = {kind: output / f"{drawn.name}.{kind}" for kind in (*formats, "csv", "json")}
    for kind, path in written.items():
        if kind == "svg":
            atomic.write_text(path, svg(folder / drawn.file("pdf"), drawn.caption))
        elif kind == "json":
            atomic.write_json(path, source(figure))
        else:
            shutil.copyfile(folder / drawn.file(kind), path)
    return list(written.values())


def source(figure: Figure) -> dict:
    """The caption and the source of the figure."""
    page, drawn = figure.page, figure.drawn
    runs = [page["runs"][run] for run in drawn.runs]
    return {
        "figure": drawn.name,
        "says": drawn.caption,
        "set": figure.folder.name,
        "notebook": page["notebook"],
        "study": page["study"],
        "drawn at commit": page["commit"],
        "measured at commits": sorted({one["commit"] for one in runs if one["commit"]}),
        "measured by code of digest": sorted({one["digest"] for one in runs}),
        "runs": list(drawn.runs),
        "files": dict(drawn.files),
    }


def svg(pdf: Path, title: str = "") -> str:
    """The drawing in `pdf` as SVG, with text as outlines, so that it needs no fonts.

    Raises:
        CannotExport: typst is not installed, or cannot read the PDF.
    """
    try:
        import typst
    except ImportError:
        raise CannotExport("SVG needs typst: `pip install typst`, or leave it out with --format pdf,png") from None
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(pdf, Path(folder) / "figure.pdf")
        page = Path(folder) / "page.typ"
        page.write_text('#set page(width: auto, height: auto, margin: 0pt)\n#image("figure.pdf")\n')
        try:
            whole = typst.compile(str(page), format="svg").decode()
        except Exception as error:
            raise CannotExport(f"{pdf.name} cannot be drawn as SVG: {error}") from error
    # Typst embeds the drawing as an image in a page; other programs read the image alone more easily.
    inner = EMBEDDED.findall(whole)
    drawing = base64.b64decode(inner[0]).decode() if len(inner) == 1 else whole
    return (
        START.sub(lambda found: f"{found[1]}<title>{escape(title)}</title>", drawing, count=1) if title else drawing
    )
