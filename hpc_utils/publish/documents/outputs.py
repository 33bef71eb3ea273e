"""What a build writes: PDFs, TeX, the list of all numbers, and the manifest that says what they were built from."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpc_utils import provenance
from hpc_utils.publish import manifest
from hpc_utils.records import atomic

from . import colophon, latex, project, source, typst
from .faults import DocumentError, Faults
from .filled import Around, Filled
from .number_lint import CLASSES
from .sets import Found
from .tree import plain
from .workshop import Workshop

NUMBERS = "numbers"


def write(workshop: Workshop, name: str, filled: Filled, around: Around, faults: Faults) -> list[Path]:
    """One document's PDF and TeX; what cannot be set is a fault, and then nothing of it is left."""
    entry = workshop.project.document[name]
    meta = _meta(workshop, name, filled, around)
    bibliography = workshop.bibliography(entry)
    with tempfile.TemporaryDirectory() as scratch:
        typst.write(filled, Path(scratch), entry.template, meta, bibliography)
        pdf = typst.compile_(Path(scratch), filled.source.file, faults)
    if pdf is None:
        return []
    written = [_placed(workshop, name, pdf, {name: filled})]
    for style in entry.tex:
        folder = workshop.target / "tex" / style
        latex.export(filled, folder, style, meta, bibliography, faults, name)
        written.append(folder / f"{name}.tex")
    return written


def _meta(workshop: Workshop, name: str, filled: Filled, around: Around) -> dict[str, Any]:
    entry, front = workshop.project.document[name], filled.source.front
    title = " ".join(plain(block["c"]) for block in filled.words["title"] if block["t"] == "Para")
    keywords = front.get("keywords") or []
    rows = colophon.rows(
        filled.used, around.sets, commit=provenance.commit(workshop.root), dirty=provenance.dirty(workshop.root),
        command="make paper",
    )  # fmt: skip
    return {
        "title": title,
        "short": _curled(str(front.get("short") or title)),
        "authors": [_author(one) for one in front.get("author") or []],
        "keywords": [str(word) for word in (keywords if isinstance(keywords, list) else [keywords])],
        "facts": [str(front[key]) for key in ("call", "acronym", "version", "date", "note") if front.get(key)],
        "colophon": rows,
        "numbers": _rows(workshop, filled.values.values()) if entry.numbers == "within" else [],
    }


def _author(one: dict[str, Any]) -> dict[str, Any]:
    more = [str(one[key]) for key in ("affiliation", "email", "orcid") if one.get(key)]
    return {"name": _curled(one["name"]), "more": [_curled(said) for said in more]}


def _curled(text: str) -> str:
    """With apostrophes as they are printed: this text does not go through Markdown."""
    return text.replace("'", "\u2019")


def numbers(workshop: Workshop, done: dict[str, Filled]) -> list[Path]:
    """numbers.pdf: each document's numbers, one after another; a number stands where it is used first."""
    if not done:
        discard(workshop, NUMBERS)
        return []
    faults = Faults()
    seen: set[str] = set()
    parts = []
    for name, filled in done.items():
        new = [one for full, one in filled.values.items() if full not in seen]
        seen.update(filled.values)
        said = _said(filled)
        if new or said:
            parts.append({"title": name, "numbers": _rows(workshop, new), "said": said})
    lead = "Each number of the documents: its name, value with 95 % interval, what it is, and what it rests on. A number stands "
    lead += "with the first document that uses it."
    meta = {"title": "Every number, and where it comes from", "short": "Every number", "authors": [], "keywords": [],
            "facts": [lead], "parts": parts, "colophon": [], "numbers": []}  # fmt: skip
    listing = Filled(source.Source("numbers", {}, {}, source.Part([], [])))
    listing.words["title"] = source.parse(meta["title"]).blocks
    with tempfile.TemporaryDirectory() as scratch:
        typst.write(listing, Path(scratch), NUMBERS, meta, [])
        pdf = typst.compile_(Path(scratch), NUMBERS, faults)
    if pdf is None:
        raise DocumentError(faults.found)
    return [_placed(workshop, NUMBERS, pdf, done)]


def _rows(workshop: Workshop, values: Iterable[Found]) -> list[dict[str, Any]]:
    folders = {alias: one.folder for alias, one in workshop.known.items()}
    return colophon.numbers(values, folders, workshop.target)


def _said(filled: Filled) -> list[tuple[str, str]]:
    """(what stands in the source, what it says it is and in which lines)."""
    lines: dict[tuple[str, str], list[int]] = {}
    for one in filled.said:
        lines.setdefault((one.passage, one.kind), []).append(one.line)
    return [
        (passage, f"{CLASSES[kind]}; {filled.source.file}:{', '.join(map(str, sorted(set(own))))}")
        for (passage, kind), own in sorted(lines.items())
    ]


def _placed(workshop: Workshop, name: str, pdf: bytes, done: dict[str, Filled]) -> Path:
    """The PDF where it belongs, and in the manifest what it was built from."""
    path = workshop.target / f"{name}.pdf"
    atomic.write(path, lambda file: file.write(pdf))
    sources, folders = set(), set()
    for one, filled in done.items():
        sources.update(workshop.sources(workshop.project.document[one]))
        sources.update(drawing.file for drawing in filled.drawings if drawing.file and not drawing.found)
        folders.update(workshop.root / workshop.project.sets[alias] for alias in workshop.project.aliases(one))
    manifest.note(path, workshop.root, sources, folders)
    return path


def discard(workshop: Workshop, name: str) -> None:
    """Nothing of a former build is left where the sources say something else by now."""
    path = workshop.target / f"{name}.pdf"
    if not path.is_dir():
        path.unlink(missing_ok=True)
    manifest.forget(path)
    for style in project.CLASSES:
        if (workshop.target / "tex" / style / f"{name}.tex").is_file():
            shutil.rmtree(workshop.target / "tex" / style)
