"""Quantities typed by hand where a cited cell belongs: digits with a unit, or words such as "twice as fast".

A number that is no result has a span with a class: `[10 Gbit/s]{.setting}`. Names, dates and versions have no
unit and are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import panflute as pf

from hpc_utils.publish import formatting

if TYPE_CHECKING:
    from .substitute import Cited

CLASSES = {
    "setting": "a setting of the experiments",
    "cited": "from the source cited in its sentence",
    "plan": "decided in a plan, not measured",
    "definition": "follows from a definition",
    "name": "part of a name or a standard",
}
LISTED = ", ".join(f".{name}" for name in CLASSES)
# Placeholders for passages that are not scanned: code or a formula; a span with the class cited; a citation; the first cell.
NEUTRAL, QUOTED, CITED, CELL = "\ue100", "\ue101", "\ue102", 0xF0000

_NUMBER = r"\d+(?:[.,\u202f]\d+)*"
_UNIT = (
    r"%|‰|×|(?:per\s?cent|percent|points?|times|-?fold|x)\b|(?:[kMGTPµmun]?s|min|h|hours?|minutes?|(?:milli|micro)?seconds?)\b"
    r"|[kMGTP]?i?(?:B|bit|flops?|FLOPS?)(?:/s)?\b|(?:samples|images|steps|tokens)(?:/s|\s+(?:a|per)\s+second)\b|[kM]?(?:W|Wh|J)\b|EUR\b|[€$]"
)
_WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
_MORE = "faster|slower|quicker|more|less|longer|shorter|larger|smaller|higher|lower|cheaper|better|worse"
_QUANTITY = "gains?|speed-?ups?|throughputs?|efficiency|efficiencies|factors?"
_TYPED = re.compile(
    rf"(?<![\w.-]){_NUMBER}[\s\u00a0-]*(?:{_UNIT})"
    rf"|\b(?:{_QUANTITY})\s*(?:of|is|was|are|were|=|:)\s*(?:about\s+)?{_NUMBER}",
)
_LEVEL = re.compile(r"\s*(?:confidence|(?:\w+\s+)?intervals?)\b")
_SPELLED = re.compile(
    rf"\b(?:{_WORDS})(?:[\s-](?:{_WORDS}))*[\s-]*(?:percent|per\s?cent|times|fold|seconds?|hours?|minutes?)\b"
    rf"|\b(?:twice|thrice|half|double|triple)\s+(?:as|the|that|of|{_MORE}|{_QUANTITY}|speed|time)\b"
    rf"|\b(?:doubl|tripl|quadrupl)(?:es|ed)\b|\bhal(?:ves|ved)\b|\border\s+of\s+magnitude\b"
    rf"|\b(?:a|one|two|three)[\s-](?:third|quarter|tenth)s?\s+(?:of\s+the|{_MORE})\b|\bfactors?\s+of\s+(?:{_WORDS})\b",
    re.I,
)


_TYPED_UNIT = re.compile(
    r"([\U000F0000-\U000FFFFD])[\s\u00a0\u202f]*(%|‰|per\s?cent\b|(?:ms|µs|us|ns|s|min|h|[kMGTP]?(?:i?B|bit|flop)(?:/s)?|[km]?Wh?|EUR)(?![\w-]))"
)


@dataclass(frozen=True)
class Typed:
    """A passage that is refused, and its line, where that is known."""

    passage: str
    why: str
    line: int = 0


def lint(tree: pf.Doc, cells: Sequence[Cited]) -> tuple[list[Typed], list[tuple[str, str]]]:
    """The refused passages of a document with placeholders for `cells`, and (passage, class) of the allowed ones."""
    refused: list[Typed] = []
    allowed: list[tuple[str, str]] = []
    for inlines in _texts(tree):
        text = _scanned(inlines, allowed)
        refused += [*typed(text), *_uncited(text, allowed), *_doubled_units(text, cells)]
    return refused, allowed


def typed(text: str) -> Iterator[Typed]:
    """The quantities of a text without markup."""
    for match in _TYPED.finditer(text):
        level = re.match(r"(?:90|95|99)\s*%$", match[0]) and _LEVEL.match(text, match.end())
        if not level:
            yield Typed(" ".join(match[0].split()), f"is typed by hand: cite a cell, or give it a class ({LISTED})")
    for match in _SPELLED.finditer(text):
        yield Typed(match[0], "is a quantity in words")


def _texts(tree: pf.Doc) -> list[list[pf.Element]]:
    """The inlines of each paragraph, heading, cell, caption and field of the front matter."""
    found: list[list[pf.Element]] = []

    def collect(element: pf.Element, doc: pf.Doc) -> None:
        if isinstance(element, pf.Para | pf.Plain | pf.Header | pf.LineItem | pf.MetaInlines):
            found.append(list(element.content))
        elif isinstance(element, pf.DefinitionItem):
            found.append(list(element.term))
        elif isinstance(element, pf.Image):
            found.append([pf.Str(element.attributes.get("source", ""))])
        elif isinstance(element, pf.Citation):
            found.append(list(element.suffix))

    tree.walk(collect)
    return found


def _scanned(inlines: Sequence[pf.Element], allowed: list[tuple[str, str]]) -> str:
    """The text as it is read; a footnote is no part of its sentence."""
    parts = []
    for node in inlines:
        if isinstance(node, pf.Str):
            parts.append(node.text)
        elif isinstance(node, pf.Space | pf.SoftBreak | pf.LineBreak):
            parts.append(" ")
        elif isinstance(node, pf.Math) and re.search(r"\d\s*\\%", node.text):
            parts.append(node.text.replace("\\%", "%"))
        elif isinstance(node, pf.Cite):
            parts.append(CITED)
        elif isinstance(node, pf.Span) and "cell" in node.classes:
            parts.append(chr(CELL + int(node.attributes["n"])))
        elif isinstance(node, pf.Span) and (kind := next((name for name in CLASSES if name in node.classes), None)):
            allowed.append((_scanned(node.content, []), kind))
            parts.append(QUOTED if kind == "cited" else NEUTRAL)
        elif isinstance(node, pf.Code | pf.Math | pf.Image) or (
            isinstance(node, pf.Span) and "claim" in node.classes
        ):
            parts.append(NEUTRAL)
        elif not isinstance(node, pf.Note) and hasattr(node, "content"):
            parts.append(_scanned(node.content, allowed))
    return "".join(parts)


def _uncited(text: str, allowed: list[tuple[str, str]]) -> Iterator[Typed]:
    """Numbers from elsewhere whose sentence cites nothing."""
    for sentence in re.split(r"(?<=[.!?;])\s+(?=[A-Z\W])", text):
        if QUOTED in sentence and CITED not in sentence:
            passage = next((passage for passage, kind in reversed(allowed) if kind == "cited"), "")
            yield Typed(f"[{passage}]{{.cited}}", "stands in a sentence that cites nothing")


def _doubled_units(text: str, cells: Sequence[Cited]) -> Iterator[Typed]:
    """Units behind a cell that prints its own, or has another."""
    for match in _TYPED_UNIT.finditer(text):
        cell, unit = cells[ord(match[1]) - CELL], re.sub(r"per\s?cent", "%", match[2])
        if cell.found is None or isinstance(cell.found.what.value, str):
            continue
        own = "" if cell.form == "repeats" else formatting.text(cell.found.what).partition(formatting.FIXED)[2]
        if cell.form != "bare" or unit != own:
            has = (
                f"has the unit {own}" if cell.form == "bare" else f"prints its unit ({own})" if own else "has no unit"
            )
            yield Typed(match[2], f"behind {cell.written}, which {has}", line=cell.line)
