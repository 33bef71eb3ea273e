"""The documents of `paper/paper.toml`: checked together, then built one by one into `paper/build/`."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import panflute as pf

from hpc_utils import toml_config
from hpc_utils.publish import manifest
from hpc_utils.records import atomic

from . import colophon, numbers, pandoc, pandoc_filter, project
from .context import BuildContext
from .document import Document, read_document
from .faults import DocumentError, Fault

NUMBERS_FRONT = """---
title: The numbers of {name}
note: >-
  Name, value with 95 % interval, meaning and evidence of each number. Runs are numbered as listed at the end;
  {name}-numbers.csv has their ids in each row.
---
"""


def build(context: BuildContext, names: Sequence[str] = (), *, check: bool = False) -> list[Path]:
    """Build the documents `names`, by default all, each with the list of its numbers; returns the files written.

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
    for name in names or context.project.document:
        context.log(f"{name}: {context.project.document[name].source}")
        if not check:
            _discard(context, name)
        try:
            document = read_document(context, name)
            if not check:
                written += _write(context, document)
        except DocumentError as error:
            faults += error.faults
    for path in written:
        context.log(f"  wrote {context.shown(str(path.relative_to(context.folder)))}")
    if faults:
        raise DocumentError(dict.fromkeys(faults))
    return written


def _write(context: BuildContext, document: Document) -> list[Path]:
    """One document's PDF and TeX, and the list of its numbers."""
    pictures = document.resolved.pictures
    rows = colophon.rows(document, context.root)
    shared = {"colophon": [{"what": pf.MetaString(label), "words": pf.MetaString(words)} for label, words in rows]}
    bibliography = context.bibliography(document.entry) if document.resolved.cites else []
    files = pictures | {file.name: file for file in bibliography}
    try:
        properties = {
            "names": [pandoc.verbatim(pandoc.quoted(author.name), "typst") for author in document.front.author],
            "words": [pandoc.verbatim(pandoc.quoted(word), "typst") for word in document.front.keywords],
            "about": pandoc.verbatim(
                pandoc.quoted("; ".join(f"{label.strip()}: {words}" for label, words in rows)), "typst"
            ),
        }
        pdf = _pdf(document.tree, document.entry.template, files, **properties, **shared)
        written = []
        for style in document.entry.tex:
            folder = context.target / "tex" / style
            _copy(files, folder)
            if drawn := [path.name for path in pictures.values() if path.suffix == ".svg"]:
                raise pandoc.PandocError(f"pdflatex reads no SVG: {', '.join(drawn)}")
            tree = pandoc_filter.for_latex(copy.deepcopy(document.tree))
            names = [pandoc.verbatim(file.stem, "latex") for file in bibliography]
            text = pandoc.render_tree(tree, "latex", f"{style}.latex", bibfiles=names, **shared)
            if unknown := pandoc.unknown_to_tex(text):
                raise pandoc.PandocError(f"pdflatex cannot print {unknown}: use a formula, such as $\\alpha$")
            written.append(folder / f"{document.name}.tex")
            atomic.write_text(written[-1], text)
    except pandoc.PandocError as error:
        raise DocumentError([Fault(context.shown(document.entry.source), 0, str(error))]) from None
    return [*_place(context, document, pdf, rows), *written]


def _pdf(tree: pf.Doc, template: str, files: dict[str, Path], listed: Any = None, **metadata: Any) -> bytes:
    """`files`: {address: file} of pictures and bibliographies; `listed`: what the template `numbers` shows."""
    tree = copy.deepcopy(tree)
    if template == "slides":
        pandoc_filter.slides(tree)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _copy(files, folder)
        atomic.write_json(folder / "numbers.json", listed)
        bibfiles = [pandoc.verbatim(name, "typst") for name in files if name.endswith(".bib")]
        tree = pandoc_filter.for_typst(tree)
        source = pandoc.render_tree(tree, "typst", "document.typst", kind=template, bibfiles=bibfiles, **metadata)
        return pandoc.compile_typst(source, folder)


def _copy(files: dict[str, Path], folder: Path) -> None:
    for address, file in files.items():
        (folder / address).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / address)


def _paths(context: BuildContext, name: str) -> list[Path]:
    """The document's PDF, and the list of its numbers as PDF and as CSV."""
    return [context.target / f"{name}{end}" for end in (".pdf", "-numbers.pdf", "-numbers.csv")]


def _place(context: BuildContext, document: Document, pdf: bytes, rows: list[tuple[str, str]]) -> list[Path]:
    """Write the PDF and the list of its numbers, with the colophon's `rows`, and note their sources in the manifest."""
    front = pandoc.parse(NUMBERS_FRONT.format(name=document.name))
    listed = _pdf(front, "numbers", {}, numbers.listed(document, context) | {"colophon": rows})
    table = numbers.numbers_table(document, context).to_csv(index=False, lineterminator="\n")
    paths = _paths(context, document.name)
    for path, content in zip(paths, (pdf, listed, table.encode()), strict=True):
        atomic.write_file(path, lambda file, content=content: file.write(content))
    claims = context.folder / context.project.claims
    entry = document.entry
    sources = [context.folder / "paper.toml", context.folder / entry.source, *context.bibliography(entry)]
    sources += [*document.resolved.pictures.values(), *[claims] * claims.is_file()]
    manifest.note(
        paths, context.root, set(sources), {result_set.folder for result_set in document.sets.by_alias.values()}
    )
    return paths


def _discard(context: BuildContext, name: str) -> None:
    """Remove the output of a former build."""
    paths = _paths(context, name)
    for path in paths:
        path.unlink(missing_ok=True)
    manifest.forget(paths[0])
    for style in context.project.document[name].tex:
        shutil.rmtree(context.target / "tex" / style, ignore_errors=True)
