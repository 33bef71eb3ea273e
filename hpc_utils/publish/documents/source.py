"""A document's source: front matter, and Markdown parsed with the line of every word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import frontmatter
from .faults import Faults
from .frontmatter import WORDS
from .marks import Mark, put

# CommonMark with what papers need. Raw passages are parsed as such, so that they can be refused.
READER = "commonmark_x-emoji-alerts-task_lists-yaml_metadata_block+sourcepos"
GRID = "markdown-raw_html-raw_tex-citations-yaml_metadata_block-tex_math_single_backslash"
GRIDS = 0xE200  # the first of the private characters that stand for grid tables
_PLACE = re.compile(r"(\d+):\d+-")

Node = dict[str, Any]


@dataclass
class Part:
    """A piece of a source: its blocks as pandoc's JSON, every leaf with its "line", and what its marks stand for."""

    blocks: list[Node]
    marks: list[Mark]


@dataclass
class Source:
    """What one file says. `front`: its front matter; `words`: title, subtitle and abstract of it; `body`: the rest."""

    file: str
    front: dict[str, Any] = field(default_factory=dict)
    words: dict[str, Part] = field(default_factory=dict)
    body: Part = field(default_factory=lambda: Part([], []))
    starts: dict[str, int] = field(default_factory=dict)  # {key of the front matter: its line}

    @property
    def parts(self) -> Iterator[Part]:
        yield from self.words.values()
        yield self.body


def read(path: Path, file: str, faults: Faults) -> Source | None:
    """The source at `path`, called `file` in what is said of it; None if it cannot be read at all."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return faults.add(file, 0, "there is no such file: write it, or correct `source` in paper.toml")
    except (OSError, UnicodeDecodeError) as error:
        return faults.add(file, 0, f"cannot be read as UTF-8: {error}")
    for place, line in enumerate(text.split("\n"), 1):
        if private := re.search("[\ue000-\uf8ff]", line):
            faults.add(
                file, place, f"the private character U+{ord(private[0]):04X} is none that a font has: remove it"
            )
    text = re.sub("[\ue000-\uf8ff]", "", text.replace("\r\n", "\n"))
    head, body, first = _cut(text)
    front = frontmatter.read(head, file, faults)
    source = Source(file, front, starts={key: frontmatter.line_of(key, head) for key in front})
    for name in WORDS:
        if isinstance(front.get(name), str):
            said, line = frontmatter.lines_of(name, front[name], head)
            source.words[name] = parse(said, line)
    source.body = parse(body, first)
    return source


def parse(text: str, first: int = 1) -> Part:
    """Markdown as blocks; `first` is the line of the file at which it starts."""
    import pypandoc

    marked, found = put(text, first)
    marked, grids = _without_grids(marked, first)
    parsed = json.loads(pypandoc.convert_text(marked, "json", format=READER))
    return Part(_with_grids(_clean(parsed["blocks"], first, first), grids), found)


def _without_grids(text: str, first: int) -> tuple[str, list[list[Node]]]:
    """Tables of `+---+` are none in CommonMark: pandoc's own Markdown reads them, and a mark stands in their place."""
    import pypandoc

    grids: list[list[Node]] = []

    def read(match: re.Match[str]) -> str:
        blocks = json.loads(pypandoc.convert_text(match[0], "json", format=GRID))["blocks"]
        line = first + text.count("\n", 0, match.start())
        grids.append(_clean(blocks, line, line))
        # As code, because a paragraph before a line with a colon would be a term that is defined.
        return f"```\n{chr(GRIDS + len(grids) - 1)}\n```" + "\n" * (match[0].count("\n") - 2)

    return re.sub(r"^\+[-=:+]+\+ *\n(?:[|+].*\n?)+", read, text, flags=re.M), grids


def _with_grids(blocks: list[Node], grids: list[list[Node]]) -> list[Node]:
    kept: list[Node] = []
    for block in blocks:
        said = block["c"][1] if block["t"] == "CodeBlock" else ""
        if len(said) == 1 and 0 <= ord(said) - GRIDS < len(grids):
            kept += grids[ord(said) - GRIDS]
        else:
            kept.append(block)
    return kept


def _cut(text: str) -> tuple[str, str, int]:
    """Front matter, body, and the line that the body starts at."""
    lines = text.split("\n")
    if lines[0].rstrip() == "---":
        for number, line in enumerate(lines[1:], 1):
            if line.rstrip() in ("---", "..."):
                return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]), number + 2
    return "", text, 1


def _clean(nodes: list[Any], line: int, first: int) -> list[Any]:
    """Without pandoc's wrappers: the line that they tell goes to what they wrap; touching words are joined."""
    kept: list[Any] = []
    for node in nodes:
        if isinstance(node, list):
            kept.append(_clean(node, line, first))
            continue
        if not isinstance(node, dict):
            kept.append(node)
            continue
        here = _line(node, first) or line
        if node.get("t") in ("Span", "Div") and _has(node, "wrapper"):
            inner = _clean(node["c"][1], here, first)
            if node["c"][0][0] and inner:  # `: A table's caption. {#tbl:its-label}`
                own = {key: said for key, said in node["c"][0][2] if key not in ("data-pos", "wrapper")}
                inner[-1]["label"] = [node["c"][0][0], own]
        else:
            inner = [_inside(node, here, first)]
        for one in inner:
            line = one.get("line", line) if isinstance(one, dict) else line
            last = kept[-1] if kept and isinstance(kept[-1], dict) else {}
            if one.get("t") == "Str" == last.get("t") and one["line"] == last["line"] and "label" not in one:
                last["c"] += one["c"]
            else:
                kept.append(one)
    return kept


def _inside(node: Node, line: int, first: int) -> Node:
    new = dict(node)
    if "t" in node:
        new["line"] = line
    for key, part in node.items():
        if isinstance(part, list):
            new[key] = _clean(part, line, first)
        elif isinstance(part, dict):
            new[key] = _inside(part, line, first)
    attributes = _attributes(new)
    if attributes is not None:
        attributes[:] = [pair for pair in attributes if pair[0] not in ("data-pos", "wrapper")]
    return new


def _attributes(node: Node) -> list[list[str]] | None:
    """The key-value pairs of a node that has attributes."""
    content = node.get("c")
    if isinstance(content, list):
        for part in content[:2]:
            if isinstance(part, list) and len(part) == 3 and isinstance(part[0], str) and isinstance(part[1], list):
                return part[2]
    return None


def _has(node: Node, name: str) -> bool:
    return any(key == name for key, _ in _attributes(node) or [])


def _line(node: Node, first: int) -> int:
    place = next((value for key, value in _attributes(node) or [] if key == "data-pos"), "")
    found = [int(number) for number in _PLACE.findall(place)]
    return first - 1 + min(found) if found else 0
