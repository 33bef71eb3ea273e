"""The documents of `paper/paper.toml`: checked together, then built one by one into `paper/build/`."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import panflute as pf

from hpc_utils import toml_config
from hpc_utils.publish import manifest
from hpc_utils.records import atomic

from . import colophon, number_lint, pandoc, pandoc_filter, project
from .context import BuildContext
from .document import Document, read
from .faults import DocumentError, Fault
from .sets import Found

NUMBERS = "numbers"
NUMBERS_FRONT = """---
title: Every number, and where it comes from
short: Every number
note: >-
  Each number of the documents: its name, value with 95 % interval, its meaning, and its evidence. A number is
  listed with the first document that uses it.
---
"""


def build(context: BuildContext, names: Sequence[str] = (), *, check: bool = False) -> list[Path]:
    """Build the documents `names`, by default all and numbers.pdf; returns the files written.

    A document with a fault leaves no PDF, not even an old one; the others are built. `check` writes nothing.

    Raises:
        ProjectError: no such document.
        DocumentError: the faults of all documents.
    """
    for name in names:
        if name not in context.project.document:
            hint = toml_config.hint(name, context.project.document)
            raise project.ProjectError(f"no document {name!r} in paper.toml: {hint}")
    faults: list[Fault] = []
    written: list[Path] = []
    done: list[Document] = []
    for name in names or context.project.document:
        context.log(f"{name}: {context.project.document[name].source}")
        if not check:
            _discard(context, name)
        try:
            document = read(context, name)
            if not check:
                written += _write(context, document)
            done.append(document)
        except DocumentError as error:
            faults += error.faults
    if not check and not names:
        written += _write_numbers(context, done)
    for path in written:
        context.log(f"  wrote {context.shown(str(path.relative_to(context.folder)))}")
    if faults:
        raise DocumentError(dict.fromkeys(faults))
    return written


def _write(context: BuildContext, document: Document) -> list[Path]:
    """One document's PDF and TeX."""
    values, pictures = document.values.values(), document.resolved.pictures
    rows = colophon.rows([*values, *document.resolved.drawn], document.sets, context.root)
    shared = {"colophon": [{"what": pf.MetaString(what), "words": pf.MetaString(words)} for what, words in rows]}
    bibliography = context.bibliography(document.entry) if document.resolved.cites else []
    parts = [{"numbers": _rows(context, values)}] if document.entry.numbers == "within" else []
    files = pictures | {file.name: file for file in bibliography}
    try:
        properties = {
            "names": [pandoc.verbatim(pandoc.quoted(one.name), "typst") for one in document.front.author],
            "words": [pandoc.verbatim(pandoc.quoted(word), "typst") for word in document.front.keywords],
        }
        pdf = _pdf(document.tree, document.entry.template, parts, files, **properties, **shared)
        written = []
        for style in document.entry.tex:
            folder = context.target / "tex" / style
            _copy(files, folder)
            tree = pandoc_filter.for_latex(copy.deepcopy(document.tree))
            names = [pandoc.verbatim(file.stem, "latex") for file in bibliography]
            text = pandoc.write(tree, "latex", f"{style}.latex", bibfiles=names, **shared)
            if unknown := pandoc.unknown_to_tex(text):
                raise pandoc.PandocError(f"pdflatex cannot print {unknown}: use a formula, such as $\\alpha$")
            written.append(folder / f"{document.name}.tex")
            atomic.write_text(written[-1], text)
    except pandoc.PandocError as error:
        raise DocumentError([Fault(context.shown(document.entry.source), 0, str(error))]) from None
    return [_place(context, document.name, pdf, [document]), *written]


def _pdf(tree: pf.Doc, template: str, parts: list[Any], files: dict[str, Path], **metadata: Any) -> bytes:
    """`parts`: lists of numbers; `files`: {address: file} of pictures and bibliographies."""
    tree = copy.deepcopy(tree)
    if template == "slides":
        pandoc_filter.slides(tree)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _copy(files, folder)
        atomic.write_json(folder / "numbers.json", parts)
        bibfiles = [pandoc.verbatim(name, "typst") for name in files if name.endswith(".bib")]
        tree = pandoc_filter.for_typst(tree)
        source = pandoc.write(tree, "typst", "document.typst", kind=template, bibfiles=bibfiles, **metadata)
        return pandoc.compile_typst(source, folder)


def _copy(files: dict[str, Path], folder: Path) -> None:
    for address, file in files.items():
        (folder / address).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / address)


def _write_numbers(context: BuildContext, done: Sequence[Document]) -> list[Path]:
    """numbers.pdf: the numbers of the documents, each with the first document that uses it."""
    seen: set[str] = set()
    parts = []
    for document in done:
        new = [one for full, one in document.values.items() if full not in seen]
        seen.update(document.values)
        lines: dict[tuple[str, str], list[int]] = {}
        for passage, kind, line in document.allowed:
            lines.setdefault((passage, kind), []).append(line)
        file = context.shown(document.entry.source)
        allowed = [
            (passage, f"{number_lint.CLASSES[kind]}; {file}:{', '.join(map(str, sorted(set(own))))}")
            for (passage, kind), own in sorted(lines.items())
        ]
        parts.append({"title": document.name, "numbers": _rows(context, new), "allowed": allowed})
    return [_place(context, NUMBERS, _pdf(pandoc.parse(NUMBERS_FRONT), NUMBERS, parts, {}), done)]


def _rows(context: BuildContext, values: Iterable[Found]) -> list[dict[str, Any]]:
    folders = {alias: one.folder for alias, one in context.result_sets.items()}
    return colophon.numbers(values, folders, context.target)


def _place(context: BuildContext, name: str, pdf: bytes, documents: Sequence[Document]) -> Path:
    """Write the PDF, and its sources into the manifest."""
    path, sources, folders = context.target / f"{name}.pdf", {context.folder / "paper.toml"}, set()
    atomic.write(path, lambda file: file.write(pdf))
    if (claims := context.folder / context.project.claims).is_file():
        sources.add(claims)
    for one in documents:
        sources.update(
            [context.folder / one.entry.source, *context.bibliography(one.entry), *one.resolved.pictures.values()]
        )
        folders.update(one.folder for one in one.sets.by_alias.values())
    manifest.note(path, context.root, sources, folders)
    return path


def _discard(context: BuildContext, name: str) -> None:
    """Remove the output of a former build."""
    path = context.target / f"{name}.pdf"
    path.unlink(missing_ok=True)
    manifest.forget(path)
    for style in context.project.document[name].tex:
        shutil.rmtree(context.target / "tex" / style, ignore_errors=True)
