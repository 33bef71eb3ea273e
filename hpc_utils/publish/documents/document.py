"""A document read from its source, checked and completed: ready to be written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import panflute as pf
from pydantic import Field, ValidationError

from hpc_utils.plural import counted
from hpc_utils.toml_config import Strict

from . import claims, number_lint, pandoc, project
from .context import BuildContext
from .faults import DocumentError, Faults, Source
from .pandoc_filter import Resolver
from .project import DocumentEntry
from .sets import SetItem, Sets
from .substitute import substitute


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
    """`values`: the cells behind it, by full name; `allowed`: (passage, class, line) of the numbers with a class."""

    name: str
    entry: DocumentEntry
    front: FrontMatter
    sets: Sets
    resolved: Resolver
    tree: pf.Doc
    values: dict[str, SetItem]
    allowed: list[tuple[str, str, int]]


def read_document(context: BuildContext, name: str) -> Document:
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
        texts = claims.judged(context, sets, faults) if "{{claim" in source.text else claims.ClaimTexts()
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
    lines = [(passage, kind, source.next_line(f"[{passage}]{{.{kind}")) for passage, kind in allowed]
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
        return FrontMatter.model_validate(_plain(tree.metadata))
    except ValidationError as error:
        for problem in error.errors():
            message = problem["msg"].removeprefix("Value error, ")
            key = (re.findall(r"unknown key '(.*?)'", message) or problem["loc"])[0]
            source.fault(f"{key}:", ": ".join(["front matter", *map(str, problem["loc"]), message]))
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, pf.MetaMap):
        return {key: _plain(part) for key, part in value.content.items()}
    return [_plain(part) for part in value.content] if isinstance(value, pf.MetaList) else pf.stringify(value).strip()
