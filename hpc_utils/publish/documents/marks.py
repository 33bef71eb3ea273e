"""What stands in a source for something else: `{{value}}`, `[@citation]`, `@fig:reference`.

Each is replaced by a mark of private characters before the Markdown is parsed, because a `|` in it would end a table's
cell, and found again in the parsed text, wherever that is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPEN, CLOSE, ZERO = "\ue000", "\ue001", 0xE010
MARK = re.compile(f"{OPEN}([\ue010-\ue019]+){CLOSE}")
REFERENCES = ("fig", "tbl", "tab", "sec", "eq")

_KEY = r"@[A-Za-z0-9_](?:[\w:./-]*[\w/])?"
_FOUND = re.compile(
    r"\{\{(?P<value>[^{}\n]*)\}\}"
    rf"|(?<!\\)\[(?P<group>{_KEY}(?:,[^;\[\]@]*)?(?:;\s*{_KEY}(?:,[^;\[\]@]*)?)*)\](?![({{])"
    rf"|(?<![\w@./\\])(?P<bare>{_KEY})"
)


@dataclass(frozen=True)
class Mark:
    """One such place. `kind`: value, cite (in brackets), prose (a citation as part of the sentence), reference.

    `keys`: (key, locator) of citations and references; `text`: as it stood in the source.
    """

    kind: str
    text: str
    line: int
    keys: tuple[tuple[str, str], ...] = ()


def put(text: str, first: int) -> tuple[str, list[Mark]]:
    """The text with marks, line for line, and what each stands for; `first` is the number of its first line."""
    found: list[Mark] = []

    def replace(match: re.Match[str]) -> str:
        line = first + text.count("\n", 0, match.start())
        if match["value"] is not None:
            mark = Mark("value", match["value"].strip(), line)
        else:
            keys = tuple(_key(part) for part in (match["group"] or match["bare"]).split(";"))
            if keys[0][0].partition(":")[0] in REFERENCES:
                kind = "reference"
            else:
                kind = "cite" if match["group"] else "prose"
            mark = Mark(kind, match[0], line, keys)
        found.append(mark)
        digits = "".join(chr(ZERO + int(digit)) for digit in str(len(found) - 1))
        in_table = text[text.rfind("\n", 0, match.start()) + 1 :].startswith("|")
        pad = " " * (len(match[0]) - len(digits) - 2) if in_table else ""  # a grid's columns stay where they are
        return OPEN + digits + CLOSE + pad + "\n" * match[0].count("\n")

    return _FOUND.sub(replace, text), found


def number(digits: str) -> int:
    """Which mark it is, from what `MARK` matched."""
    return int("".join(str(ord(digit) - ZERO) for digit in digits))


def restore(text: str, marks: list[Mark]) -> str:
    """The text as it stood in the source: code keeps its braces."""

    def source(match: re.Match[str]) -> str:
        mark = marks[number(match[1])]
        return f"{{{{{mark.text}}}}}" if mark.kind == "value" else mark.text

    return MARK.sub(source, text)


def _key(part: str) -> tuple[str, str]:
    key, _, locator = part.strip().removeprefix("@").partition(",")
    return key.strip(), locator.strip()
