"""Walking pandoc's tree: what has text, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Node = dict[str, Any]
INLINE_LISTS = {"Emph", "Strong", "Underline", "Strikeout", "Superscript", "Subscript", "SmallCaps"}


def walk(nodes: Any) -> Iterator[Node]:
    """Every node below, in reading order."""
    if isinstance(nodes, list):
        for node in nodes:
            yield from walk(node)
    elif isinstance(nodes, dict):
        if "t" in nodes:
            yield nodes
        for part in nodes.values():
            if isinstance(part, list | dict):
                yield from walk(part)


def texts(nodes: Any) -> Iterator[list[Node]]:
    """Each run of inlines that is read as one text: paragraphs, headings, cells, captions; footnotes by themselves."""
    for node in walk(nodes):
        if node["t"] in ("Para", "Plain"):
            yield node["c"]
        elif node["t"] == "Header":
            yield node["c"][2]
        elif node["t"] == "LineBlock":
            yield from node["c"]
        elif node["t"] == "DefinitionList":
            for term, _ in node["c"]:
                yield term


def inner(node: Node) -> list[Node]:
    """The inlines that an inline holds; a footnote's text is not part of its sentence."""
    kind, content = node["t"], node.get("c")
    if kind in INLINE_LISTS:
        return content
    if kind in ("Quoted", "Cite", "Span", "Link", "Image"):
        return content[1]
    return []


def plain(inlines: list[Node]) -> str:
    """What the inlines say, without markup."""
    said = []
    for node in inlines:
        if node["t"] == "Str":
            said.append(node["c"])
        elif node["t"] == "Value":
            said.append(node["c"]["text"])
        elif node["t"] in ("Space", "SoftBreak", "LineBreak"):
            said.append(" ")
        elif node["t"] in ("Code", "Math"):
            said.append(node["c"][1])
        else:
            said.append(plain(inner(node)))
    return "".join(said)


def classes(node: Node) -> list[str]:
    """Of a Span, Div, Code or Image."""
    return node["c"][0][1]


def pairs(node: Node) -> dict[str, str]:
    """Its attributes with values."""
    return dict(node["c"][0][2])


def replaced(nodes: Any, change: Callable[[Node], list[Node] | None]) -> Any:
    """A copy in which each node for which `change` gives nodes is replaced by them; others are looked into."""
    if isinstance(nodes, dict):
        return {key: replaced(part, change) for key, part in nodes.items()}
    if not isinstance(nodes, list):
        return nodes
    kept: list[Any] = []
    for node in nodes:
        new = change(node) if isinstance(node, dict) and "t" in node else None
        if new is None:
            kept.append(replaced(node, change))
        else:
            kept += new
    return kept


def bare(nodes: Any) -> Any:
    """As pandoc reads it: without our lines and labels."""
    if isinstance(nodes, dict):
        return {key: bare(part) for key, part in nodes.items() if key not in ("line", "label")}
    return [bare(node) for node in nodes] if isinstance(nodes, list) else nodes


def words(text: str) -> list[Node]:
    """Text as inlines: unbreakable spaces stay in it."""
    return [{"t": "Str", "c": text}]


def raw(format_: str, text: str) -> Node:
    """A passage that the writer hands through."""
    return {"t": "RawInline", "c": [format_, text]}


def para(inlines: list[Node]) -> Node:
    return {"t": "Para", "c": inlines}
