"""Numbers that somebody typed: found however they are disguised, and refused unless the text says what they are.

A number is a result until something says otherwise. What may stand is in `SAID` (a span's class: `[10 Gbit/s]{.setting}`),
a part of a name (ResNet-18), a date, a place (Section 3, rank 0), a version, or the level of an interval (95 %).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .marks import CLOSE, MARK, OPEN, number
from .source import Part
from .tree import classes, inner, texts, walk

SAID = {
    "setting": "a setting of the experiments",
    "cited": "from the source cited in its sentence",
    "plan": "decided in a plan, not measured",
    "definition": "follows from a definition",
    "name": "part of a name or a standard",
}
ADVICE = "write {{{{its.name}}}}, or say what it is: [{number}]{{.setting}}, .cited, .plan, .definition, .name"

NEUTRAL, QUOTED, CITED = "\ue100", "\ue101", "\ue102"  # a value or name; a span that says what it is; a citation
_SCALES = "nano|micro|milli|centi|kilo|mega|giga|tera|peta|exa|kibi|mebi|gibi"
_WORDS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
)
_WORDS += (
    "|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion|dozen"
)
_SPELLED = rf"\b(?:{_WORDS}|half)(?:(?:[\s-]+(?:and[\s-]+|a[\s-]+)?|\s+point\s+)(?:{_WORDS}|half))*"
_UNITS = (
    rf"%|‰|per\s?cent\b|percent\w*|times\b|x\b|×|-?fold\b|(?:{_SCALES})?(?:seconds?|minutes?|hours?|watts?|joules?|bits?|bytes?|hertz|"
    r"flops?)\b|gigabit|megabit|watt-hours?\b|kilowatt-hours?\b|euros?\b|dollars?\b"
)
_SYMBOLS = r"%|‰|€|\$|×|x\b|[kMGTPEµunm]?(?:i?B|bit|b|s|W|Wh|J|Hz|FLOPS?|flops?|flop|V|A)(?:/\w+)?\b|ms\b|min\b|h\b|EUR\b|USD\b|fold\b"
SPELLED = re.compile(
    rf"{_SPELLED}[\s-]*(?:{_UNITS})"
    rf"|\b(?:{_WORDS})fold\b|\b(?:twice|thrice|half|double|triple|quadruple|treble)\s+(?:as|the|that|of)\b"
    r"|\b(?:doubl|tripl|trebl|quadrupl|quintupl)(?:es|ed)\b|\bhal(?:ves|ved)\b"
    rf"|\b(?:an?|{_WORDS})[\s-]+(?:third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth|hundredth|thousandth)s?\s+(?:of|the|as)\b"
    r"|\b(?:an?|one|two|three|several)\s+orders?\s+of\s+magnitude\b",
    re.I,
)
_ADDRESS = re.compile(r"(?:https?://|doi:|arXiv:)\S+", re.I)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*(?:[ '’_]\d{3}(?!\d))*(?:[.,]\d+)?(?:e[+-]?\d+)?(?:/\d+)?", re.I)
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(
    rf"\b\d{{4}}-\d{{2}}(?:-\d{{2}})?\b|\b\d{{1,2}} (?:{_MONTH})\b|\b(?:{_MONTH}) \d{{1,2}}(?:, \d{{4}})?\b"
)
_YEAR = re.compile(r"(?:19|20|21)\d\d$")
_PLACES = (
    "section|sections|sect|sec|chapter|chapters|figure|figures|fig|table|tables|equation|eq|step|steps|issue|page|pages|part|"
    "appendix|article|trl|wp|package|packages|task|milestone|deliverable|month|months|m|phase|level|rank|node|device|version|v|"
    "rfc|iso|ieee|rung|row|column|item|note|edition|tier|zero|seed|objective|risk"
)
_PLACE = re.compile(rf"\b(?:{_PLACES})\.?\s*$", re.I)
_VERSIONED = re.compile(
    r"\b(?:version|v|python|pytorch|torch|cuda|rocm|nccl|gloo|slurm|debian|ubuntu|linux|numpy|cc[ -]by(?:-[a-z]+)*|apache|mpi|"
    r"openmp|pandoc|typst|ro-crate)\s*$", re.I,
)  # fmt: skip
_LEVEL = re.compile(
    r"\s*(?:%|per\s?cent)\s*(?:confidence\s+|credible\s+|t\s+|bootstrap\s+)?(?:intervals?|levels?|limits)\b", re.I
)
_LINKED = re.compile(r"\s*(?:,|and|or|to|–|-|,\s*and)\s*$")
_ENUMERATED = re.compile(r"\((?:\d)\)")
_UNIT_NEXT = re.compile(rf"[\s\u00a0-]*(?:{_SYMBOLS}|{_UNITS})")
_MATHS_UNIT = re.compile(
    r"\\(?:text|mathrm|mathsf|operatorname|unit)\s*\{[^}]*\}|\\times\s*$|\\(?:SI|si|qty|num|percent)\b|\\?%"
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
    """What is refused in a part of a source, and what it says of its other numbers."""
    refused, allowed = [], []
    for inlines in texts(part.blocks):
        letters = list(_letters(inlines, part, allowed))
        refused += _scan(letters)
        refused += _uncited(letters, allowed)
    for node in walk(part.blocks):
        if node["t"] == "Image":
            letters = list(_letters(node["c"][1], part, allowed))
            refused += _scan(letters)
    return list(dict.fromkeys(refused)), list(dict.fromkeys(allowed))


def _letters(inlines: list[Any], part: Part, allowed: list[Allowed]) -> Iterator[tuple[str, int]]:
    """Characters as they are read, digits of every script as ours, each with its line."""
    for node in inlines:
        kind, line = node["t"], node.get("line", 0)
        if kind == "Str":
            yield from ((letter, line) for letter in _read(node["c"], part))
        elif kind in ("Space", "SoftBreak", "LineBreak"):
            yield " ", line
        elif kind == "Code":
            code = _read(node["c"][1], part)
            alone = re.fullmatch(rf"\W*{_NUMBER.pattern}\s*(?:{_SYMBOLS}|{_UNITS})?\W*", code, re.I)
            yield from ((letter, line) for letter in (code if alone else NEUTRAL))
        elif kind == "Math":
            yield from ((letter, line) for letter in _maths(node["c"][1]))
        elif kind == "Span" and (said := next((name for name in classes(node) if name in SAID), None)):
            passage = "".join(letter for letter, _ in _letters(node["c"][1], part, []))
            found = Allowed(line, passage, said)
            allowed.append(found)
            yield QUOTED if said == "cited" else NEUTRAL, line
        elif kind == "Image":
            yield NEUTRAL, line
        elif kind == "Link" and _read(node["c"][2][0], part) == "".join(
            one for one, _ in _letters(node["c"][1], part, [])
        ):
            yield NEUTRAL, line  # an address
        else:
            yield from _letters(inner(node), part, allowed)


def _read(text: str, part: Part) -> str:
    def stand_in(match: re.Match[str]) -> str:
        return CITED if part.marks[number(match[1])].kind in ("cite", "prose") else NEUTRAL

    said = []
    for letter in MARK.sub(stand_in, text):
        if unicodedata.category(letter) == "Cf" or letter in (OPEN, CLOSE):
            continue  # invisible
        digit = unicodedata.decimal(letter, None)
        said.append(str(digit) if digit is not None else unicodedata.normalize("NFKC", letter).replace("⁄", "/"))
    return "".join(said)


def _maths(formula: str) -> str:
    """A formula as what it would say as a number: `72\\%` is 72 %, `2(n-1)` nothing."""
    read = unicodedata.normalize("NFKC", formula)
    read = re.sub(r"\{\s*([.,\d%\\]*)\s*\}", r"\1", read)
    flat = re.sub(r"\\(?:[,;:! ]|quad|qquad|mathbf|mathrm|text|approx|sim|geq?|leq?|pm|displaystyle)|~|\s", "", read)
    flat = flat.replace("\\%", "%").replace("\\times", "×")
    decimal = re.search(r"\d[.,]\d", flat)
    unit = re.search(rf"\d\s*(?:{_SYMBOLS}|{_UNITS})(?![A-Za-z(])", flat.replace("{", "").replace("}", "")) or (
        re.search(r"\d", read) and _MATHS_UNIT.search(read) and not re.search(r"\\(?:text|mathrm)\s*\{[^}]*\}", read)
    )
    alone = re.fullmatch(r"[^\w\\]*\d[\d.,/]*[^\w\\]*", flat)
    equals = re.search(
        r"(?:[=≈<>≤≥∼]|\\(?:approx|sim|geq?|leq?)\s*)\s*[-+]?\s*(?:[2-9]|\d\d+)(?![\w(\\])", read.replace(" ", "")
    )
    fraction = re.search(r"\\frac(?:\{\d{2,}\}|\{?\d+\}?\{\d{2,}\})", formula)
    if decimal or unit or alone or equals or fraction:
        return " " + re.sub(r"\\[A-Za-z]+|[A-Za-z_^]", " ", flat) + " "
    return NEUTRAL


def _scan(letters: list[tuple[str, int]]) -> list[Typed]:
    text = "".join(letter for letter, _ in letters)
    lines = [line for letter, line in letters for _ in letter]

    def blank(match: re.Match[str]) -> str:
        return NEUTRAL * len(match[0])

    found = [Typed(lines[match.start()], match[0], "is a quantity in words") for match in SPELLED.finditer(text)]
    text = _ENUMERATED.sub(blank, _DATE.sub(blank, _ADDRESS.sub(blank, text)))
    free_until = -1
    for match in _NUMBER.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        between = before[free_until:] if free_until >= 0 else None
        if _may_stand(match[0], before, after) or (
            between is not None and _LINKED.fullmatch(between) and not _UNIT_NEXT.match(after)
        ):
            free_until = match.end()
            continue
        free_until = -1
        unit = _UNIT_NEXT.match(after)
        passage = " ".join((match[0] + (unit[0] if unit else "")).split())
        found.append(Typed(lines[match.start()], passage, "is typed by hand"))
    return found


def _may_stand(digits: str, before: str, after: str) -> bool:
    if digits in ("90", "95", "99") and _LEVEL.match(after):
        return True
    if _UNIT_NEXT.match(after):
        return False
    attached = re.search(r"(?:[A-Za-z]|[A-Za-z][-–_/.:+])$", before)
    if attached and not re.search(r"(?:^|[^A-Za-z])x$", before):
        return True
    if re.match(r"(?:st|nd|rd|th|D)\b", after):
        return True
    if re.match(r"[A-Za-z]", after) and not (_PLACE.search(before) and re.match(r"[a-z]\b", after)):
        return False
    if re.fullmatch(r"\d{4}", digits) and _YEAR.fullmatch(digits):
        return True
    if _VERSIONED.search(before) or re.fullmatch(r"\d+(?:\.\d+){2,}", digits):
        return True
    return bool(_PLACE.search(before)) and bool(re.fullmatch(r"\d{1,4}(?:\.\d{1,2}){0,2}", digits))


def _uncited(letters: list[tuple[str, int]], allowed: list[Allowed]) -> list[Typed]:
    """A number from elsewhere whose sentence names no source."""
    text = "".join(letter for letter, _ in letters)
    lines = [line for letter, line in letters for _ in letter]
    found, start = [], 0
    for sentence in re.split(r"(?<=[.!?;])\s+(?=[A-Z\W])", text):
        place = text.index(sentence, start)
        start = place + len(sentence)
        if QUOTED in sentence and CITED not in sentence:
            line = lines[place + sentence.index(QUOTED)]
            passage = next((one.passage for one in allowed if one.kind == "cited" and one.line == line), "a number")
            found.append(Typed(line, passage, "is called .cited, but its sentence cites nothing"))
    return found
