"""The documents of `paper/paper.toml`: each read from its source, checked and completed, then written into `paper/build/`."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import panflute as pf
from pydantic import Field, ValidationError

from hpc_utils import toml_config
from hpc_utils.plural import counted
from hpc_utils.records import atomic
from hpc_utils.toml_config import Strict

from . import claim_texts, colophon, number_lint, pandoc, project
from .citations import Resolver, substitute
from .faults import DocumentError, Fault, Faults, Source
from .sets import BuildContext, SetItem, Sets

NUMBERS_FRONT = """---
title: The numbers of {name}
note: >-
  Name, value with 95 % interval, meaning and evidence of each number. Runs are numbered as listed at the end;
  {name}-numbers.csv has their ids in each row.
---
"""


class Author(Strict):
    """An author in the front matter."""

    name: str = Field(min_length=1)
    affiliation: str = ""
    email: str = ""
    orcid: str = ""


class FrontMatter(Strict):
    """The front matter as text without markup. `short`: the title in running heads."""

    title: str = Field(min_length=1)
    subtitle: str = ""
    short: str = ""
    abstract: str = ""
    date: str = ""
    version: str = ""
    call: str = ""
    acronym: str = ""
    note: str = ""
    author: list[Author] = Field([])
    keywords: list[str] = Field([])


@dataclass
class Document:
    """`values`: the cells behind it, by full name; `allowed`: {(passage, class): lines} of the numbers with a class."""

    name: str
    entry: project.DocumentEntry
    front: FrontMatter
    sets: Sets
    resolved: Resolver
    tree: pf.Doc
    values: dict[str, SetItem]
    allowed: dict[tuple[str, str], list[int]]


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
            document = _read(context, name)
            for alias, runs in _cited_runs(document).items():
                for line in document.sets.by_alias[alias].absent(runs):
                    context.log(f"  {line}")
            if not check:
                written += _write(context, document)
        except DocumentError as error:
            faults += error.faults
        except pandoc.PandocError as error:
            faults.append(Fault(context.shown(context.project.document[name].source), 0, str(error)))
    for path in written:
        context.log(f"  wrote {context.shown(str(path.relative_to(context.folder)))}")
    if faults:
        raise DocumentError(dict.fromkeys(faults))
    return written


def _cited_runs(document: Document) -> dict[str, set[str]]:
    """{alias: the runs behind its cited cells}."""
    runs: dict[str, set[str]] = {}
    for item in document.values.values():
        runs.setdefault(item.alias, set()).update(item.content.runs)
    return runs


# -- reading --------------------------------------------------------------------------------------------------


def _read(context: BuildContext, name: str) -> Document:
    """The document `name` of paper.toml.

    Raises:
        DocumentError: all its faults.
    """
    entry = context.project.document[name]
    faults = Faults()
    sets = context.sets(context.project.aliases(name), entry.planned)
    file = context.shown(entry.source)
    try:
        source = Source((context.folder / entry.source).read_text("utf-8"), file, faults)
        bibliography = "\n".join(path.read_text("utf-8") for path in context.bibliography(entry))
        texts = claim_texts.judged(context, sets, faults) if "{{claim" in source.text else claim_texts.ClaimTexts()
        text, cells = substitute(source.text, file, sets, texts, faults)
        tree = pandoc.parse(text)
    except (OSError, UnicodeDecodeError, pandoc.PandocError) as error:
        faults.add(file, 0, str(error))
        raise DocumentError(faults) from None
    front = _front_matter(tree, source)
    refused, allowed = number_lint.lint(tree)
    for passage, why in refused:
        source.fault(passage, f"{passage!r} {why}")
    keys = set(re.findall(r"^\s*@\w+\s*\{\s*([^,\s]+)\s*,", bibliography, re.M))
    resolver = Resolver(source, cells, sets, keys, context.folder, f"{name}-numbers.pdf")
    tree = resolver.run(tree)
    values = {**resolver.values, **{value.full: value for value in texts.values(sets)}}
    meanings = [value.content.caption for value in values.values()]
    if missing := pandoc.missing_letters("".join([pf.stringify(tree), *meanings])):
        source.fault(missing, f"no available font has {missing} (U+{ord(missing):04X}): use another character")
    for alias, fault in sets.stale:
        line = project.line_of(context.folder / "paper.toml", alias)
        faults.add(context.shown("paper.toml"), line, f"results {alias}: {fault}")
    lines: dict[tuple[str, str], list[int]] = {}
    for passage, kind in allowed:
        lines.setdefault((passage, kind), []).append(source.next_line(f"[{passage}]{{.{kind}"))
    if faults:
        raise DocumentError(faults)
    if sets.lacking:
        context.log(f"  not measured: {counted(len(sets.lacking), 'citation')}")
        for written, why in sets.lacking.items():
            if not why.startswith(("no table", "no figure")):  # it may be misspelt
                context.log(f"  not measured: {file}:{source.next_line(written)}: {why}")
    return Document(name, entry, front, sets, resolver, tree, values, lines)


def _front_matter(tree: pf.Doc, source: Source) -> FrontMatter | None:
    try:
        return FrontMatter.model_validate(tree.get_metadata())
    except ValidationError as error:
        for problem in error.errors():
            message = problem["msg"].removeprefix("Value error, ")
            key = (re.findall(r"unknown key '(.*?)'", message) or problem["loc"])[0]
            source.fault(f"{key}:", ": ".join(["front matter", *map(str, problem["loc"]), message]))
        return None


# -- writing --------------------------------------------------------------------------------------------------


def _write(context: BuildContext, document: Document) -> list[Path]:
    """Write the document's PDF, TeX and list of numbers.

    Raises:
        PandocError: pandoc or Typst refuses it.
    """
    entry = document.entry
    pictures = document.resolved.pictures
    bibliography = context.bibliography(entry) if document.resolved.cites else []
    files = pictures | {file.name: file for file in bibliography}
    used = [*document.values.values(), *document.resolved.drawn]
    rows = colophon.rows(document.name, used, document.sets, context.root)
    metadata = {"colophon": [{"what": pf.MetaString(label), "words": pf.MetaString(words)} for label, words in rows]}
    properties = {
        "names": [_typst(author.name) for author in document.front.author],
        "words": [_typst(word) for word in document.front.keywords],
        "about": _typst("; ".join(f"{label.strip()}: {words}" for label, words in rows)),
    }
    pdf = _pdf(document.tree, entry.template, files, **metadata, **properties)
    metadata["bibfiles"] = [pandoc.verbatim(file.stem, "latex") for file in bibliography]
    written = [_write_tex(context, document, style, files, metadata) for style in entry.tex]
    values = document.values.values()
    listed = colophon.listed(values, document.sets, context.project.sets, context.target)
    listed |= {"allowed": _allowed(document, context.shown(entry.source)), "colophon": rows}
    front = pandoc.parse(NUMBERS_FRONT.format(name=document.name))
    table = colophon.numbers_table(values, context.project.sets)
    contents = (pdf, _pdf(front, "numbers", {}, listed), table.to_csv(index=False, lineterminator="\n").encode())
    paths = _paths(context, document.name)
    for path, content in zip(paths, contents, strict=True):
        atomic.write_file(path, lambda file, content=content: file.write(content))
    return [*paths, *written]


def _write_tex(
    context: BuildContext, document: Document, style: str, files: dict[str, Path], metadata: dict[str, Any]
) -> Path:
    """The document for the conference class `style`, with its `files`."""
    text = pandoc.render_tree(document.tree, "latex", f"{style}.latex", **metadata)
    if unknown := pandoc.unknown_to_tex(text):
        raise pandoc.PandocError(f"pdflatex cannot print {unknown}: use a formula, such as $\\alpha$")
    folder = context.target / "tex" / style
    _copy(files, folder)
    for drawing in folder.rglob("*.svg"):
        atomic.write_file(drawing.with_suffix(".pdf"), lambda file, svg=drawing: file.write(pandoc.drawing_pdf(svg)))
        drawing.unlink()
    path = folder / f"{document.name}.tex"
    atomic.write_text(path, text)
    return path


def _typst(text: str) -> pf.MetaInlines:
    return pandoc.verbatim(pandoc.quoted(text), "typst")


def _pdf(tree: pf.Doc, template: str, files: dict[str, Path], listed: Any = None, **metadata: Any) -> bytes:
    """`files`: {address: file} of pictures and bibliographies; `listed`: what the template `numbers` shows."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _copy(files, folder)
        atomic.write_json(folder / "numbers.json", listed)
        bibfiles = [pandoc.verbatim(name, "typst") for name in files if name.endswith(".bib")]
        source = pandoc.render_tree(tree, "typst", "document.typst", kind=template, bibfiles=bibfiles, **metadata)
        return pandoc.compile_typst(source, folder)


def _copy(files: dict[str, Path], folder: Path) -> None:
    for address, file in files.items():
        (folder / address).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / address)


def _allowed(document: Document, file: str) -> list[tuple[str, str]]:
    """(passage, its class in words and its lines) of the numbers that are no results."""
    return [
        (passage, f"{number_lint.CLASSES[kind]}; {file}:{', '.join(map(str, sorted(set(lines))))}")
        for (passage, kind), lines in sorted(document.allowed.items())
    ]


def _paths(context: BuildContext, name: str) -> list[Path]:
    """The document's PDF, and the list of its numbers as PDF and as CSV."""
    return [context.target / f"{name}{end}" for end in (".pdf", "-numbers.pdf", "-numbers.csv")]


def _discard(context: BuildContext, name: str) -> None:
    """Remove the output of a former build."""
    for path in _paths(context, name):
        path.unlink(missing_ok=True)
    for style in context.project.document[name].tex:
        shutil.rmtree(context.target / "tex" / style, ignore_errors=True)
