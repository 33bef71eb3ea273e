"""Text as a reader would say it: digits of every script as ours, code, formulas and values as what they stand for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .marks import CLOSE, MARK, OPEN, number
from .source import Part
from .tree import classes, inner

SAID = {
    "setting": "a setting of the experiments",
    "cited": "from the source cited in its sentence",
    "plan": "decided in a plan, not measured",
    "definition": "follows from a definition",
    "name": "part of a name or a standard",
}

LONGEST = 60  # characters of a passage that says what it is
NEUTRAL, QUOTED, CITED = "\ue100", "\ue101", "\ue102"  # a value or name; a span that says what it is; a citation
_SCALES = "nano|micro|milli|centi|kilo|mega|giga|tera|peta|exa|kibi|mebi|gibi"
WORDS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
)
WORDS += (
    "|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion|dozen"
)
_SPELLED = rf"\b(?:{WORDS}|half)(?:(?:[\s-]+(?:and[\s-]+|a[\s-]+)?|\s+point\s+)(?:{WORDS}|half))*"
UNITS = (
    rf"%|‰|per\s?cent\b|percent\w*|times\b|x\b|×|-?fold\b|(?:{_SCALES})?(?:seconds?|minutes?|hours?|watts?|joules?|bits?|bytes?|hertz|"
    r"flops?)\b|gigabit|megabit|watt-hours?\b|kilowatt-hours?\b|euros?\b|dollars?\b"
)
SYMBOLS = r"%|‰|€|\$|×|x\b|[kMGTPEµunm]?(?:i?B|bit|b|s|W|Wh|J|Hz|FLOPS?|flops?|flop|V|A)(?:/\w+)?\b|ms\b|min\b|h\b|EUR\b|USD\b|fold\b"
_ORDINAL = "third|quarter|fourth|fifth|sixth|seventh|eighth|ninth|tenth|twentieth|hundredth|thousandth"
_MORE = r"faster|slower|quicker|more|less|longer|shorter|larger|smaller|higher|lower|cheaper|dearer|better|worse"
_QUANTITY = r"speed|time|throughput|rate|bandwidth|efficiency|performance|cost|memory|energy|gain"
SPELLED = re.compile(
    rf"{_SPELLED}[\s-]*(?:{UNITS})"
    rf"|\b(?:{WORDS})fold\b|\b(?:twice|thrice|half|double|triple|quadruple|treble)\s+(?:as|the|that|of|{_MORE}|{_QUANTITY})\b"
    r"|\b(?:doubl|tripl|trebl|quadrupl|quintupl)(?:es|ed)\b|\bhal(?:ves|ved)\b"
    rf"|\b(?:an?|{WORDS})[\s-]+(?:{_ORDINAL})s?\s+(?:of|the|as|{_MORE})\b|\b(?:{WORDS})[\s-]+(?:{_ORDINAL})s\b"
    rf"|\b(?:by|to)\s+(?:an?|one)[\s-]+(?:{_ORDINAL})\b"
    r"|\b(?:an?|one|two|three|several)\s+orders?\s+of\s+magnitude\b"
    rf"|\bfactors?\s+of\s+(?:about\s+|almost\s+|nearly\s+|some\s+|over\s+)?(?:{WORDS})\b|\bby\s+half\b"
    rf"|\b(?:{WORDS})\s+out\s+of\s+(?:every\s+)?(?:{WORDS})\b|\bone\s+in\s+(?:every\s+)?(?:{WORDS})\b"
    rf"|\b(?:{WORDS})\s+(?:in|of)\s+(?:every\s+)?(?:ten|twenty|(?:an?\s+|one\s+)?(?:hundred|thousand))\b"
    rf"|\b(?:gain|speed-?up|efficiency)s?\s+(?:is|was|of|are|were)\s+(?!one\b)(?:{WORDS})\b"
    rf"|\b(?:{WORDS})\s+point\s+(?:{WORDS})\b|\bpoint\s+(?:{WORDS})\s+(?:{WORDS})\b"
    r"|\b(?:a\s+couple|a\s+handful|tens|dozens|hundreds|thousands|millions)\s+of\s+times\b",
    re.I,
)
ROMAN = re.compile(r"\b[IVXLC]{2,}\s*(?:times|percent|per cent|%|x\b|-?fold)")
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*(?:[ '’_]\d{3}(?!\d))*(?:[.,]\d+)?(?:e[+-]?\d+)?(?:/\d+)?", re.I)
_RESULT = re.compile(
    r"(?<![\w.%])\d+(?:[.,]\d+)?\s*(?:[%‰](?![\w(])|×(?!\s*\d)|x\b|percent\b|times\b|-?fold\b)"
    r"|\b(?:gain|speed-?up|throughput|efficiency|factor)\s*[=:]+\s*\d[\d.,]*", re.I,
)  # fmt: skip
_MATHS_UNIT = re.compile(
    r"\\(?:text|mathrm|mathsf|operatorname|unit)\s*\{[^}]*\}|\\times\s*$|\\(?:SI|si|qty|num|percent)\b|\\?%"
)


@dataclass(frozen=True)
class Allowed:
    """A passage that says what it is: listed beside the values."""

    line: int
    passage: str
    kind: str


def letters_of(inlines: list[Any], part: Part, allowed: list[Allowed]) -> Iterator[tuple[str, int]]:
    """Characters as they are read, digits of every script as ours, each with its line."""
    for node in inlines:
        kind, line = node["t"], node.get("line", 0)
        if kind == "Str":
            yield from ((letter, line) for letter in read(node["c"], part))
        elif kind in ("Space", "SoftBreak", "LineBreak"):
            yield " ", line
        elif kind == "Code":
            code = read(node["c"][1], part)
            alone = re.fullmatch(rf"\W*{NUMBER.pattern}\s*(?:{SYMBOLS}|{UNITS})?\W*", code, re.I)
            yield from ((letter, line) for letter in (code if alone else result_in(code) or NEUTRAL))
        elif kind == "Math":
            yield from ((letter, line) for letter in _maths(node["c"][1]))
        elif kind == "Span" and (said := next((name for name in classes(node) if name in SAID), None)):
            passage = "".join(letter for letter, _ in letters_of(node["c"][1], part, []))
            allowed.append(Allowed(line, passage, said))
            if len(passage) > LONGEST:
                yield from ((letter, line) for letter in passage)  # not a way round the rule
            yield QUOTED if said == "cited" else NEUTRAL, line
        elif kind == "Image":
            yield NEUTRAL, line
        elif kind == "Link" and read(node["c"][2][0], part) == "".join(
            one for one, _ in letters_of(node["c"][1], part, [])
        ):
            yield NEUTRAL, line  # an address
        else:
            yield from letters_of(inner(node), part, allowed)


def result_in(code: str) -> str:
    """What code says as a result: it may hold commands and names, but `gain = 72 %` is none of them."""
    found = _RESULT.search(code)
    return f" {found[0].split('=')[-1].split(':')[-1].strip()} " if found else ""


def read(text: str, part: Part) -> str:
    """Text with our digits for those of every script, and without what is invisible."""

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
    unit = re.search(rf"\d\s*(?:{SYMBOLS}|{UNITS})(?![A-Za-z(])", flat.replace("{", "").replace("}", "")) or (
        re.search(r"\d", read) and _MATHS_UNIT.search(read) and not re.search(r"\\(?:text|mathrm)\s*\{[^}]*\}", read)
    )
    variables = re.search(r"[A-Za-z]", _words_out(read))
    alone = re.search(r"\d", flat) and not variables and flat not in ("0", "1")
    equals = re.search(
        r"(?:[=≈<>≤≥∼]|\\(?:approx|sim|geq?|leq?)\s*)\s*[-+]?\s*(?:[2-9]|\d\d+)(?![\w(\\])", read.replace(" ", "")
    )
    fraction = re.search(
        r"\\frac(?:\{\d{2,}\}|\{?\d+\}?\{\d{2,}\})|=\s*\\[dt]?frac\s*\{?\d+\}?\s*\{?\d+\}?\s*$", formula
    )
    if spelled := SPELLED.search(re.sub(r"\\[A-Za-z]+|[{}~]|\\.", " ", read)):
        return f" {spelled[0]} "
    if decimal or unit or alone or equals or fraction:
        return " " + re.sub(r"\\[A-Za-z]+|[A-Za-z_^]", " ", flat) + " "
    return NEUTRAL


def _words_out(formula: str) -> str:
    """Without the commands that are no quantities, so that what is left of letters is a variable."""
    return re.sub(
        r"\\(?:frac|cdot|times|approx|sim|pm|left|right|geq?|leq?|quad|text|math[a-z]+)(?![A-Za-z])", " ", formula
    )
