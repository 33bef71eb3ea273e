"""A unit that somebody typed behind a value: refused where the value prints its own, or has another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hpc_utils.publish import formatting

from .sets import Found
from .tree import Node, plain

_UNIT = re.compile(
    r"[\s\u00a0\u202f]*(%|‰|per\s?cent\b|(?:ms|µs|us|ns|s|min|h|[kMGTP]?(?:i?B|bit|flop)(?:/s)?|[km]?Wh?|EUR)(?![\w-]))"
)
_WORDS = {"percent": "%", "per cent": "%"}


def of(found: Found, form: str) -> dict[str, Any]:
    """What a value's node says of its unit: the symbol, and whether the text has it."""
    printed = formatting.text(found.what)
    symbol = "" if form == "repeats" or isinstance(found.what.value, str) else printed.partition(formatting.FIXED)[2]
    return {"unit": symbol, "bare": form == "bare", "words": isinstance(found.what.value, str) and form != "repeats"}


def twice(nodes: Any) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) for every value with such a unit behind it."""
    if isinstance(nodes, dict):
        nodes = list(nodes.values())
    for place, node in enumerate(nodes):
        if isinstance(node, dict) and node.get("t") == "Value":
            said = _wrong(node["c"], plain(nodes[place + 1 : place + 4]))
            if said:
                yield node["line"], said
        elif isinstance(node, list | dict):
            yield from twice(node)


def _wrong(value: Node, after: str) -> str:
    match = _UNIT.match(after)
    if match is None or value["words"]:
        return ""
    typed = _WORDS.get(match[1], match[1])
    if value["bare"]:
        own = value["unit"] or "no unit"
        return (
            ""
            if typed == value["unit"]
            else f"{match[1]!r} behind {value['full']}|bare, which has {own}: write that, or leave |bare out"
        )
    has = f"prints {value['unit']} itself" if value["unit"] else "has no unit"
    return f"{match[1]!r} behind {value['full']}, which {has}: take it out"
