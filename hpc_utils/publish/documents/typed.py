"""Numbers that somebody typed: found however they are disguised, and refused unless the text says what they are.

A number is a result until something says otherwise. What may stand is in `SAID` (a span's class: `[10 Gbit/s]{.setting}`),
a part of a name (ResNet-18), a date, a place (Section 3, rank 0), a version, or the level of an interval (95 %).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from .marks import MARK
from .reading import (
    CITED,
    NEUTRAL,
    NUMBER,
    QUOTED,
    ROMAN,
    SPELLED,
    SYMBOLS,
    UNITS,
    Allowed,
    letters_of,
    read,
    result_in,
)
from .source import Part
from .tree import texts, walk

_ADDRESS = re.compile(r"(?:https?://|doi:|arXiv:)\S+", re.I)
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?!\d|\.\d|\s*(?:%|per\s?cent|times|×))"
_DATE = re.compile(
    rf"\b\d{{4}}-(?:0[1-9]|1[0-2])(?:-{_DAY})?\b(?!-?\d)|\b{_DAY} (?:{_MONTH})\b|\b(?:{_MONTH}) {_DAY}(?:, \d{{4}})?\b"
)
FAR = 20  # sections, ranks or months that a list may skip
_FIRST_YEAR, _YEARS_AHEAD = 1950, 2
_QUANTITY = r"gains?|speed|speed-?ups?|throughputs?|efficienc(?:y|ies)|rates?|times?|bandwidths?|latenc(?:y|ies)|factors?|samples"
_MEASURED = re.compile(
    rf"\b(?:(?:{_QUANTITY})\s*(?:of|was|were|is|are|at|=|:|reaches|reached)|measured?|reach(?:es|ed)?|gains?|gained|got|gives?|gave)\s*$",
    re.I,
)  # before a year, which is none then
_PARTS = (
    "section|sections|sect|sec|chapter|chapters|figure|figures|fig|table|tables|equation|eq|appendix|article|part"
)
_PLACES = (
    "step|steps|issue|page|pages|trl|wp|package|packages|task|milestone|deliverable|month|months|phase|level|rank|ranks|node|device|"
    "rfc|iso|ieee|rung|row|column|item|note|edition|tier|zero|seed|objective|risk"
)
_PART = re.compile(rf"\b(?:{_PARTS})\.?\s*$", re.I)
_PLACE = re.compile(rf"\b(?:{_PARTS}|{_PLACES})\.?\s*$", re.I)
_SECTIONS = re.compile(r"\b(?:sections?|sects?|sec|chapters?|appendix|part)\.?\s*$", re.I)
_COUNTED = re.compile(
    r"\s+(?!(?:is|was|has|as|its|this|thus|always|across|versus)\b)[a-z]{3,}s\b"
)  # 2,000 samples is no year
_VERSIONED = re.compile(
    r"\b(?:version|v|python|pytorch|torch|cuda|rocm|nccl|gloo|slurm|debian|ubuntu|linux|numpy|cc[ -]by(?:-[a-z]+)*|apache|mpi|"
    r"openmp|pandoc|typst|ro-crate)\s*$", re.I,
)  # fmt: skip
_LEVEL = re.compile(
    r"\s*(?:%|per\s?cent)\s*(?:confidence\b|(?:credible\s+|t\s+|bootstrap\s+|prediction\s+)?intervals?\b)", re.I
)
_FORMATS = re.compile(
    r"(?:bf|fp|tf|u?int|b?float|sha|utf|md|ipv|ddp|fsdp|py|x|(?:dd|ddp|fsdp)\d+x|o|e\dm)-?$"
)  # small ones: bf16, ddp2x1
_NAMED = ("Llama", "Qwen", "Xeon", "Titan", "Wikitext", "Horizon")  # names with one capital; with more, any stands
_PER = re.compile(r"\s*(?:per\b|[a-z]+/|samples\b|images\b|tokens\b)", re.I)
_LINKED = re.compile(r"\s*(?:,|and|or|to|–|-|,\s*and)\s*$")
_ENUMERATED = re.compile(r"\(\d\)(?!\s*(?:%|per\s?cent|times|×))")
_UNIT_NEXT = re.compile(rf"[\s\u00a0-]*(?:{SYMBOLS}|{UNITS})")


@dataclass(frozen=True)
class Typed:
    """A passage that is refused, and why."""

    line: int
    passage: str
    why: str


def look(part: Part) -> tuple[list[Typed], list[Allowed]]:
    """What is refused in a part of a source, and what it says of its other numbers."""
    refused, allowed = [], []
    for inlines in texts(part.blocks):
        letters = list(letters_of(inlines, part, allowed))
        refused += _scan(letters)
        refused += _uncited(letters, allowed)
    for node in walk(part.blocks):
        if node["t"] == "CodeBlock" and (said := result_in(read(node["c"][1], part))):
            refused.append(Typed(node.get("line", 0), said.strip(), "is typed by hand"))
        if node["t"] == "Image":
            letters = list(letters_of(node["c"][1], part, allowed))
            refused += _scan(letters)
        if node["t"] in ("Link", "Image"):
            refused += look_at(node["c"][2][1], node.get("line", 0))
        if node["t"] == "Image":
            refused += look_at(dict(node["c"][0][2]).get("source", ""), node.get("line", 0))
    return list(dict.fromkeys(refused)), list(dict.fromkeys(allowed))


def look_at(text: str, line: int) -> list[Typed]:
    """What is refused in text that is printed as it stands: of the front matter, in a citation's brackets, a picture's source."""
    return _scan([(letter, line) for letter in read(MARK.sub(NEUTRAL, text), Part([], []))])


def _scan(letters: list[tuple[str, int]]) -> list[Typed]:
    text = "".join(letter for letter, _ in letters)
    lines = [line for letter, line in letters for _ in letter]

    def blank(match: re.Match[str]) -> str:
        return NEUTRAL * len(match[0])

    spelled = [*SPELLED.finditer(text), *ROMAN.finditer(text)]
    found = [Typed(lines[match.start()], match[0], "is a quantity in words") for match in spelled]
    text = _ENUMERATED.sub(blank, _DATE.sub(blank, _ADDRESS.sub(blank, text)))
    free_until, last = -1, ""
    for match in NUMBER.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        between = before[free_until:] if free_until >= 0 else None
        if _may_stand(match[0], before, after) or (
            between is not None
            and _LINKED.fullmatch(between)
            and not _UNIT_NEXT.match(after)
            and _follows(match[0], last)
        ):
            free_until, last = match.end(), match[0]
            continue
        free_until = -1
        unit = _UNIT_NEXT.match(after)
        passage = " ".join((match[0] + (unit[0] if unit else "")).split())
        found.append(Typed(lines[match.start()], passage, "is typed by hand"))
    return found


def _may_stand(digits: str, before: str, after: str) -> bool:
    """Whether a number is none of the study's: a level, part of a name, a year, a version, a place."""
    if digits in ("90", "95", "99") and _LEVEL.match(after):
        return True
    if _UNIT_NEXT.match(after):
        return False
    if name := re.search(r"([A-Za-z][\w-]*)$", before):
        return name[1].lower() == "v" or _is_name(name[1], digits)
    if re.match(r"(?:st|nd|rd|th|D)\b", after):
        return True
    if re.match(r"[A-Za-z]", after) and not (_PLACE.search(before) and re.match(r"[a-z]\b", after)):
        return False
    if _is_year(digits):
        return not (_COUNTED.match(after) or _PER.match(after) or _MEASURED.search(before))
    if _VERSIONED.search(before) or re.fullmatch(r"\d+(?:\.\d+){2,}", digits):
        return not _PER.match(after)
    if _PER.match(after):
        return False
    if _SECTIONS.search(before):
        return bool(re.fullmatch(r"\d{1,2}(?:\.\d{1,2}){0,2}", digits))
    if _PART.search(before):
        return bool(re.fullmatch(r"\d{1,3}", digits))
    return bool(_PLACE.search(before) and re.fullmatch(r"\d{1,4}", digits))


def _is_name(name: str, digits: str) -> bool:
    """Whether a number ends a name: ResNet-18, H100, WP1, bf16; no gain-14, and nothing with a decimal."""
    own = re.split(r"-(?=[A-Za-z])", name)[-1]
    if not digits.isdigit():
        return False
    if own.strip("-") in ("GPU", "CPU", "GPUs", "CPUs"):
        return len(digits) == 1
    capitals = sum(letter.isupper() for letter in own)
    single = len(re.sub(r"[\W\d_]", "", own)) == 1 and capitals == 1
    return (
        capitals > 1
        or single
        or own.strip("-") in _NAMED
        or (bool(_FORMATS.match(own)) and (own != "x" or digits == "86"))
    )


def _is_year(digits: str) -> bool:
    return bool(re.fullmatch(r"\d{4}", digits)) and _FIRST_YEAR <= int(digits) <= date.today().year + _YEARS_AHEAD


def _follows(digits: str, last: str) -> bool:
    """Whether a number goes on with a list of places, versions or years: `Sections 3, 4 and 7`."""
    if not (digits.isdigit() and last.isdigit()):
        return bool(
            re.fullmatch(r"\d{1,2}(?:\.\d{1,2}){1,2}", digits) and re.fullmatch(r"\d{1,2}(?:\.\d{1,2}){1,2}", last)
        )
    return 0 < int(digits) - int(last) <= FAR


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
