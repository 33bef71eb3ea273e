"""The documents of `paper/paper.toml`: checked together, then built one by one into `paper/build/`."""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import panflute as pf

from hpc_utils import provenance, toml_config
from hpc_utils.publish import manifest
from hpc_utils.records import atomic

from . import claims, colophon, number_lint, pandoc, project
from .context import BuildContext
from .faults import DocumentError, Faults
from .pandoc_filter import Resolver, typeset
from .project import DocumentEntry
from .sets import Found, Sets
from .source import Source
from .substitute import substitute

NUMBERS = "numbers"
# Letters of a table's row, side by side, for which a column and a page have room.
COLUMN, PAGE = 72, 150
TEXT = ("title", "subtitle", "short", "abstract", "date", "version", "call", "acronym", "note", "language")
FRONT = (*TEXT, "author", "keywords")
AUTHOR = ("name", "affiliation", "email", "orcid")


@dataclass
class Document:
    """A document that was read and completed. `allowed`: (passage, class, line) of the numbers that say what they are."""

    name: str
    entry: DocumentEntry
    sets: Sets
    tree: pf.Doc
    values: dict[str, Found] = field(default_factory=dict)
    drawn: list[Found] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    allowed: list[tuple[str, str, int]] = field(default_factory=list)
    cites: bool = False


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
        document = _read(context, name, faults)
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


def _read(context: BuildContext, name: str, faults: Faults) -> Document | None:
    """The document, complete; what is wrong with it is in `faults`."""
    entry = context.project.document[name]
    sets = context.sets(context.project.aliases(name))
    for alias, one in sets.by_alias.items():
        for message in one.faults:
            faults.add(context.shown("paper.toml"), context.line_in_project(alias), f"results {alias}: {message}")
    path, file = context.folder / entry.source, context.shown(entry.source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return faults.add(file, 0, f"cannot be read as UTF-8: {error}")
    source = Source(text, file, faults)
    texts = claims.judged(context, sets, faults) if "{{claim" in text else claims.ClaimTexts()
    text, cells = substitute(text, file, sets, texts, faults)
    try:
        tree = pandoc.parse(text)
    except pandoc.PandocError as error:
        return faults.add(file, 1, str(error))
    _check_front_matter(tree, source)
    if not tree.content:
        source.fault(0, "there is no text below the front matter")
    refused, allowed = number_lint.lint(tree, cells)
    _report(refused, source)
    letters = {False: COLUMN if entry.template == "paper" else PAGE, True: PAGE}
    resolver = Resolver(cells, sets, _citations(context, entry, faults), path.parent, letters, source)
    tree = resolver.run(tree)
    values = {**resolver.values, **{one.full: one for one in texts.values(sets)}}
    if missing := pandoc.missing_letters(_letters(tree, values)):
        source.fault(chr(int(missing[2:].split()[0], 16)), f"no font at hand has {missing}: use another character")
    listed = list(_listed(allowed, source))
    return Document(name, entry, sets, tree, values, resolver.drawn, resolver.pictures, listed, resolver.cites)


def _check_front_matter(tree: pf.Doc, source: Source) -> None:
    for key, value in tree.metadata.content.items():
        if key not in FRONT:
            source.fault(f"{key}:", f"unknown key {key!r} in the front matter: {toml_config.hint(key, FRONT)}")
        elif key in TEXT and (
            isinstance(value, pf.MetaList | pf.MetaMap | pf.MetaBool) or not pf.stringify(value).strip()
        ):
            source.fault(f"{key}:", f"`{key}` is no text")
        elif key == "author":
            for author in value.content if isinstance(value, pf.MetaList) else [value]:
                known = isinstance(author, pf.MetaMap) and "name" in author and set(author.content) <= set(AUTHOR)
                if not known:
                    source.fault(
                        "author:", f"an author is `- name: ...`, with the further keys {', '.join(AUTHOR[1:])}"
                    )
    if "title" not in tree.metadata:
        source.fault(1, "the front matter has no title: write `title: ...` between two lines of ---")


def _report(refused: Iterable[number_lint.Typed], source: Source) -> None:
    at = 0
    for one in refused:
        opening = source.find(one.opening, at) if one.opening else None
        at = opening.start() if opening else at
        line = one.line or source.line(one.passage, at, r"(?!\]\{\.)") or source.line_at(at)
        classes = ", ".join(f".{name}" for name in list(number_lint.CLASSES)[1:])
        advice = (
            f": cite a cell, or say what it is: [{one.passage}]{{.setting}}, {classes}" if "typed" in one.why else ""
        )
        source.fault(line, f"{one.passage!r} {one.why}{advice}")


def _listed(allowed: Iterable[number_lint.Allowed], source: Source) -> Iterator[tuple[str, str, int]]:
    at = 0
    for one in allowed:
        mark = f"[{one.passage}]{{.{one.kind}"
        found = source.find(mark, at)
        at = found.end() if found else at
        yield one.passage, one.kind, source.line_at(at)


def _citations(context: BuildContext, entry: DocumentEntry, faults: Faults) -> frozenset[str]:
    """The keys of the document's bibliographies."""
    keys: list[str] = []
    for name in entry.bibliography:
        file = context.folder / name
        if not file.is_file():
            if (name,) != entry.bibliography:
                faults.add(
                    context.shown("paper.toml"),
                    context.line_in_project("bibliography"),
                    f"there is no bibliography {name}",
                )
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            faults.add(context.shown(name), 0, f"cannot be read as UTF-8: {error}")
            continue
        own = re.findall(r"^\s*@(?!comment|string|preamble)\w+\s*\{\s*([^,\s]+)\s*,", text, re.M | re.I)
        for key in {key for key in own if own.count(key) > 1 or key in keys}:
            faults.add(context.shown(name), 0, f"the bibliography has several entries {key}")
        keys += own
    return frozenset(keys)


def _letters(tree: pf.Doc, values: dict[str, Found]) -> set[str]:
    letters = {letter for found in values.values() for letter in found.what.says}

    def collect(element: pf.Element, doc: pf.Doc) -> None:
        if isinstance(element, pf.Str | pf.Code | pf.CodeBlock):
            letters.update(element.text)

    tree.walk(collect)
    return letters


def _write(context: BuildContext, document: Document, faults: Faults) -> list[Path]:
    """One document's PDF and TeX."""
    used = [*document.values.values(), *document.drawn]
    commit, dirty = provenance.commit(context.root), provenance.dirty(context.root)
    rows = colophon.rows(used, document.sets, commit=commit, dirty=dirty, command="make paper")
    front = document.tree.metadata
    if "short" not in front and "title" in front:
        front["short"] = copy.deepcopy(front["title"])
    shared = {"colophon": [{"what": pf.MetaString(what), "words": pf.MetaString(words)} for what, words in rows]}
    bibliography = context.bibliography(document.entry) if document.cites else []
    within = document.entry.numbers == "within"
    parts = [{"title": "", "numbers": _rows(context, document.values.values()), "allowed": []}] if within else []
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
        front = tree.metadata
        authors = front["author"].content if "author" in front else []
        strings = {
            "title": pf.stringify(front["title"]), "authors": [pf.stringify(author["name"]) for author in authors],
            "keywords": [pf.stringify(word) for word in front["keywords"].content] if "keywords" in front else [],
        }  # fmt: skip
        atomic.write_json(folder / "properties.json", strings)
        files = [pf.MetaString(file.name) for file in bibliography]
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
    stems = [pf.MetaString(file.stem) for file in bibliography]
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
        "  Each number of the documents: its name, value with 95 % interval, what it is, and what it rests on. A number stands\n"
        "  with the first document that uses it.\n---\n"
    )
    try:
        pdf = _pdf(tree, NUMBERS, parts, [], {})
    except pandoc.PandocError as error:
        faults = Faults()
        faults.add(NUMBERS, 0, str(error))
        raise DocumentError(faults) from None
    return [_place(context, NUMBERS, pdf, done)]


def _rows(context: BuildContext, values: Iterable[Found]) -> list[dict[str, Any]]:
    folders = {alias: one.folder for alias, one in context.result_sets.items()}
    return colophon.numbers(values, folders, context.target)


def _place(context: BuildContext, name: str, pdf: bytes, documents: Sequence[Document]) -> Path:
    """Write the PDF, and into the manifest what it was built from."""
    path = context.target / f"{name}.pdf"
    atomic.write(path, lambda file: file.write(pdf))
    sources, folders = set(), set()
    for document in documents:
        sources.update(context.sources(document.entry), document.pictures)
        folders.update(one.folder for one in document.sets.by_alias.values())
    manifest.note(path, context.root, sources, folders)
    return path


def _discard(context: BuildContext, name: str) -> None:
    """Remove what a former build wrote."""
    path = context.target / f"{name}.pdf"
    path.unlink(missing_ok=True)
    manifest.forget(path)
    for style in project.TEX:
        if (context.target / "tex" / style / f"{name}.tex").is_file():
            shutil.rmtree(context.target / "tex" / style)
