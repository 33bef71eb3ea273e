"""The documents of `paper/paper.toml`: checked together, then built one by one into `paper/build/`."""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import panflute as pf

from hpc_utils import toml_config
from hpc_utils.publish import manifest
from hpc_utils.records import atomic

from . import colophon, number_lint, pandoc, project
from .context import BuildContext
from .document import Document, entries, read
from .faults import DocumentError, Faults
from .pandoc_filter import typeset
from .sets import Found

NUMBERS = "numbers"


def build(context: BuildContext, names: Sequence[str] = (), *, check: bool = False) -> list[Path]:
    """Build the documents `names`, by default all, and numbers.pdf; returns the files written.

    A document with a fault leaves no PDF, not even an old one; the others are built. `check` writes nothing.

    Raises:
        project.ProjectError: no such document.
        DocumentError: the faults of all documents.
    """
    entries = context.project.document
    for name in names:
        if name not in entries:
            raise project.ProjectError(f"no document {name!r} in paper.toml: {toml_config.hint(name, entries)}")
    all_faults = Faults()
    written: list[Path] = []
    done: list[Document] = []
    for name, entry in entries.items():
        asked = not names or name in names
        if check and not asked:
            continue
        if asked:
            context.log(f"{name}: {entry.source}")
        faults = Faults()
        document = read(context, name, faults)
        if asked and not check and not faults:
            try:
                files = _write(context, document, faults)
            except pandoc.PandocError as error:
                faults.add(context.shown(entry.source), 0, str(error))
        if not faults:
            done.append(document)
        if asked and faults:
            for fault in faults:
                all_faults.add(fault.file, fault.line, fault.message)
            if not check:
                _discard(context, name)
        elif asked and not check:
            for path in files:
                context.log(f"  wrote {context.shown(str(path.relative_to(context.folder)))}")
            written += files
    if not check:
        written += _write_numbers(context, done)
    if all_faults:
        raise DocumentError(all_faults)
    return written


def _write(context: BuildContext, document: Document, faults: Faults) -> list[Path]:
    """One document's PDF and TeX."""
    rows = colophon.rows([*document.values.values(), *document.resolved.drawn], document.sets, context.root)
    front = document.tree.metadata
    if "short" not in front:
        front["short"] = copy.deepcopy(front["title"])
    shared = {"colophon": [{"what": pf.MetaString(what), "words": pf.MetaString(words)} for what, words in rows]}
    bibliography = context.bibliography(document.entry) if document.resolved.cites else []
    parts = [{"numbers": _rows(context, document.values.values())}] if document.entry.numbers == "within" else []
    pdf = _pdf(document.tree, document.entry.template, parts, bibliography, shared)
    written = [_place(context, document.name, pdf, [document])]
    for style in document.entry.tex:
        written.append(_write_tex(context, document, style, bibliography, shared, faults))
    return written


def _pdf(tree: pf.Doc, template: str, parts: list[Any], bibliography: list[Path], shared: dict[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for file in bibliography:
            shutil.copy(file, folder)
        atomic.write_json(folder / "numbers.json", parts)
        front = tree.metadata.content
        strings = {
            "title": pf.stringify(front["title"]),
            "authors": [pf.stringify(author["name"]) for author in entries(front, "author")],
            "keywords": [pf.stringify(word) for word in entries(front, "keywords")],
        }
        atomic.write_json(folder / "properties.json", strings)
        files = [pandoc.verbatim(file.name, "typst") for file in bibliography]
        source = pandoc.write(
            typeset(copy.deepcopy(tree), "typst", folder, template), "typst", "document.typst",
            kind=template, bibfiles=files, **shared,
        )  # fmt: skip
        return pandoc.compile_typst(source, folder)


def _write_tex(
    context: BuildContext,
    document: Document,
    style: str,
    bibliography: list[Path],
    shared: dict[str, Any],
    faults: Faults,
) -> Path:
    """`<name>.tex`, its bibliographies and `figures/`, in a folder emptied before."""
    folder = context.target / "tex" / style
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in bibliography:
        shutil.copy(file, folder)
    stems = [pandoc.verbatim(file.stem, "latex") for file in bibliography]
    tree = typeset(copy.deepcopy(document.tree), "latex", folder, "paper")
    text = pandoc.write(tree, "latex", f"{style}.latex", bibfiles=stems, **shared)
    declared = {chr(int(code, 16)) for code in re.findall(r"\\DeclareUnicodeCharacter\{(\w+)\}", text)}
    for letter in sorted({letter for letter in text if letter >= "\u0180"} - declared - set("–—‘’“”")):
        faults.add(
            context.shown(document.entry.source), 0, f"TeX has no {pandoc.named(letter)}: use another character"
        )
    atomic.write_text(folder / f"{document.name}.tex", text)
    return folder / f"{document.name}.tex"


def _write_numbers(context: BuildContext, done: Sequence[Document]) -> list[Path]:
    """numbers.pdf: the numbers of the documents, each with the first document that uses it."""
    if not done:
        _discard(context, NUMBERS)
        return []
    seen: set[str] = set()
    parts = []
    for document in done:
        new = [one for full, one in document.values.items() if full not in seen]
        seen.update(document.values)
        lines: dict[tuple[str, str], set[int]] = {}
        for passage, kind, line in document.allowed:
            lines.setdefault((passage, kind), set()).add(line)
        file = context.shown(document.entry.source)
        allowed = [
            (passage, f"{number_lint.CLASSES[kind]}; {file}:{', '.join(map(str, sorted(own)))}")
            for (passage, kind), own in sorted(lines.items())
        ]
        if new or allowed:
            parts.append({"title": document.name, "numbers": _rows(context, new), "allowed": allowed})
    tree = pandoc.parse(
        "---\ntitle: Every number, and where it comes from\nshort: Every number\nnote: >-\n"
        "  Each number of the documents: its name, value with 95 % interval, its meaning, and its evidence. A number is\n"
        "  listed with the first document that uses it.\n---\n"
    )
    return [_place(context, NUMBERS, _pdf(tree, NUMBERS, parts, [], {}), done)]


def _rows(context: BuildContext, values: Iterable[Found]) -> list[dict[str, Any]]:
    folders = {alias: one.folder for alias, one in context.result_sets.items()}
    return colophon.numbers(values, folders, context.target)


def _place(context: BuildContext, name: str, pdf: bytes, documents: Sequence[Document]) -> Path:
    """Write the PDF, and its sources into the manifest."""
    path = context.target / f"{name}.pdf"
    atomic.write(path, lambda file: file.write(pdf))
    sources, folders = set(), set()
    for document in documents:
        sources.update(context.sources(document.entry), document.resolved.pictures)
        folders.update(one.folder for one in document.sets.by_alias.values())
    manifest.note(path, context.root, sources, folders)
    return path


def _discard(context: BuildContext, name: str) -> None:
    """Remove the output of a former build."""
    path = context.target / f"{name}.pdf"
    path.unlink(missing_ok=True)
    manifest.forget(path)
    for style in project.TEX:
        if (context.target / "tex" / style / f"{name}.tex").is_file():
            shutil.rmtree(context.target / "tex" / style)
