"""A document read from its source, checked and completed: ready to be written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import panflute as pf

from hpc_utils import toml_config

from . import claims, number_lint, pandoc
from .context import BuildContext
from .faults import Faults
from .pandoc_filter import Resolver
from .project import DocumentEntry
from .sets import Found, Sets
from .source import Source
from .substitute import substitute

TEXT = ("title", "subtitle", "short", "abstract", "date", "version", "call", "acronym", "note")
FRONT = (*TEXT, "author", "keywords")
AUTHOR = ("name", "affiliation", "email", "orcid")


@dataclass
class Document:
    """`values`: the cells behind it, by full name; `allowed`: (passage, class, line) of the numbers with a class."""

    name: str
    entry: DocumentEntry
    sets: Sets
    resolved: Resolver
    tree: pf.Doc
    values: dict[str, Found]
    allowed: list[tuple[str, str, int]]


def read(context: BuildContext, name: str, faults: Faults) -> Document | None:
    """The document `name` of paper.toml; its errors are added to `faults`."""
    entry = context.project.document[name]
    sets = context.sets(context.project.aliases(name))
    for alias, one in sets.by_alias.items():
        for message in one.faults:
            faults.add(context.shown("paper.toml"), context.line_in_project(alias), f"results {alias}: {message}")
    file, path = context.shown(entry.source), context.folder / entry.source
    text = _text(path, file, faults)
    bibliography = "\n".join(_text(one, context.shown(one.name), faults) for one in context.bibliography(entry))
    if not text or not sets.readable:
        return None
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
    for one in refused:
        source.fault(one.line or one.passage, f"{one.passage!r} {one.why}")
    keys = re.findall(r"^\s*@(?!comment|string|preamble)\w+\s*\{\s*([^,\s]+)\s*,", bibliography, re.M | re.I)
    resolver = Resolver(source, cells, sets, frozenset(keys), path.parent, entry.template)
    tree = resolver.run(tree)
    values = {**resolver.values, **{one.full: one for one in texts.values(sets)}}
    meanings = [found.what.says for found in values.values()]
    if missing := pandoc.missing_letters("".join([pf.stringify(tree), *meanings])):
        source.fault(missing, f"no available font has {pandoc.named(missing)}: use another character")
    lines = [(passage, kind, source.next_line(f"[{passage}]{{.{kind}")) for passage, kind in allowed]
    return Document(name, entry, sets, resolver, tree, values, lines)


def _text(path: Path, file: str, faults: Faults) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        faults.add(file, 0, f"cannot be read as UTF-8: {error}")
        return ""


def _check_front_matter(tree: pf.Doc, source: Source) -> None:
    front = tree.metadata.content
    for key, value in front.items():
        if key not in FRONT:
            source.fault(f"{key}:", f"unknown key {key!r} in the front matter: {toml_config.hint(key, FRONT)}")
        elif key in TEXT and not _is_text(value):
            source.fault(f"{key}:", f"`{key}` is no text")
    for author in entries(front, "author"):
        known = isinstance(author, pf.MetaMap) and "name" in author and set(author.content) <= set(AUTHOR)
        if not (known and all(map(_is_text, author.content.values()))):
            source.fault("author:", f"an author is `- name: ...`, with the further keys {', '.join(AUTHOR[1:])}")
    if not all(map(_is_text, entries(front, "keywords"))):
        source.fault("keywords:", "`keywords` is no list of words: write [one, another]")
    if "title" not in front:
        source.fault(1, "the front matter has no title: write `title: ...` between two lines of ---")


def entries(front: Mapping[str, Any], key: str) -> list[Any]:
    """The entries of a list in the front matter; of anything else, itself."""
    value = front.get(key, pf.MetaList())
    return list(value.content) if isinstance(value, pf.MetaList) else [value]


def _is_text(value: Any) -> bool:
    return isinstance(value, pf.MetaInlines | pf.MetaBlocks) and bool(pf.stringify(value).strip())
