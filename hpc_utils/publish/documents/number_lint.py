"""Numbers typed by hand where a result belongs: a quantity with its unit, or in words such as "twice as fast".

What is no result says what it is, by the class of its span: `[10 Gbit/s]{.setting}`. Names, dates, places and versions have no unit, and
may stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .marks import MARK, number
from .source import Part
from .tree import classes, inner, texts, walk

CLASSES = {
    "setting": "a setting of the experiments",
    "cited": "from the source cited in its sentence",
    "plan": "decided in a plan, not measured",
    "definition": "follows from a definition",
    "name": "part of a name or a standard",
}
NEUTRAL, QUOTED, CITED = "\ue100", "\ue101", "\ue102"  # a value or code; a span with the class cited; a citation

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


@dataclass(frozen=True)
class Typed:
    """A passage that is refused, and why."""

    line: int
    passage: str
    why: str


@dataclass(frozen=True)
class Allowed:
    """A passage that says what it is: listed beside the values."""

    line: int
    passage: str
    kind: str


def look(part: Part) -> tuple[list[Typed], list[Allowed]]:
    """What is refused in a part of a source, and which of its numbers say what they are."""
    refused: list[Typed] = []
    allowed: list[Allowed] = []
    shown = [node for node in walk(part.blocks) if node["t"] in ("Link", "Image")]
    captions = [node["c"][1] for node in shown if node["t"] == "Image"]
    for inlines in [*texts(part.blocks), *captions]:
        letters = list(_letters(inlines, part, allowed))
        refused += [*_scan(letters), *_uncited(letters, allowed)]
    for node in shown:
        for text in (node["c"][2][1], dict(node["c"][0][2]).get("source", "")):  # title; whose the picture is
            refused += look_at(text, node.get("line", 0))
    return list(dict.fromkeys(refused)), list(dict.fromkeys(allowed))


def look_at(text: str, line: int) -> list[Typed]:
    """What is refused in text that is printed as it stands: of the front matter, in a citation's brackets, a picture's source."""
    return _scan([(letter, line) for letter in MARK.sub(NEUTRAL, text)])


def _letters(inlines: list[Any], part: Part, allowed: list[Allowed]) -> Iterator[tuple[str, int]]:
    """Characters as they are read, each with its line; values, code, formulas and addresses as one neutral character."""

    def stand_in(match: re.Match[str]) -> str:
        return CITED if part.marks[number(match[1])].kind in ("cite", "prose") else NEUTRAL

    for node in inlines:
        kind, line = node["t"], node.get("line", 0)
        if kind == "Str":
            yield from ((letter, line) for letter in MARK.sub(stand_in, node["c"]))
        elif kind in ("Space", "SoftBreak", "LineBreak"):
            yield " ", line
        elif kind == "Math" and re.search(r"\d\s*\\%", node["c"][1]):
            yield from ((letter, line) for letter in node["c"][1].replace("\\%", "%"))
        elif kind in ("Code", "Math", "Image"):
            yield NEUTRAL, line
        elif kind == "Span" and (own := next((name for name in classes(node) if name in CLASSES), None)):
            passage = "".join(letter for letter, _ in _letters(node["c"][1], part, []))
            allowed.append(Allowed(line, passage, own))
            yield QUOTED if own == "cited" else NEUTRAL, line
        else:
            yield from _letters(inner(node), part, allowed)


def _scan(letters: list[tuple[str, int]]) -> list[Typed]:
    text = "".join(letter for letter, _ in letters)
    found = []
    for match in _TYPED.finditer(text):
        level = re.match(r"(?:90|95|99)\s*%$", match[0]) and _LEVEL.match(text, match.end())
        if not level:
            found.append(Typed(letters[match.start()][1], " ".join(match[0].split()), "is typed by hand"))
    return found + [
        Typed(letters[one.start()][1], one[0], "is a quantity in words") for one in _SPELLED.finditer(text)
    ]


def _uncited(letters: list[tuple[str, int]], allowed: list[Allowed]) -> Iterator[Typed]:
    """Numbers from elsewhere whose sentence cites nothing."""
    text, start = "".join(letter for letter, _ in letters), 0
    for sentence in re.split(r"(?<=[.!?;])\s+(?=[A-Z\W])", text):
        start = text.index(sentence, start)
        if QUOTED in sentence and CITED not in sentence:
            line = letters[start + sentence.index(QUOTED)][1]
            passage = next((one.passage for one in allowed if one.kind == "cited" and one.line == line), "a number")
            yield Typed(line, passage, "is called .cited, but its sentence cites nothing")
