"""Quantities typed by hand where a cited cell belongs: digits with a unit, or words such as "twice as fast".

A number that is no result has a span with a class: `[10 Gbit/s]{.setting}`. Names, dates and versions have no
unit and are allowed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator

import panflute as pf

CLASSES = {
    "setting": "a setting of the experiments",
    "cited": "from the source cited in its sentence",
    "plan": "decided in a plan, not measured",
    "definition": "follows from a definition",
    "name": "part of a name or a standard",
}
LISTED = ", ".join(f".{name}" for name in CLASSES)
# Placeholders for passages that are not scanned: code, a formula or a cell; a span with the class cited; a citation.
NEUTRAL, QUOTED, CITED = "\ue100", "\ue101", "\ue102"

_NUMBER = r"\d+(?:[.,\u202f]\d+)*"
_UNIT = (
    r"%|‰|×|(?:per\s?cent|percent|points?|times|-?fold|x)\b|(?:[kMGTPµmun]?s|min|h|hours?|minutes?|(?:milli|micro)?seconds?)\b"
    r"|[kMGTP]?i?(?:B|bit|flops?|FLOPS?)(?:/s)?\b|(?:samples|images|steps|tokens)(?:/s|\s+(?:a|per)\s+second)\b|[kM]?(?:W|Wh|J)\b|EUR\b|[€$]"
    r"|(?:(?:million|thousand)\s)?(?:node|core|device|[GC]PU)[\s-](?:hours?|h)\b"
)
_WORDS = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand"
_MORE = "faster|slower|quicker|more|less|longer|shorter|larger|smaller|higher|lower|cheaper|better|worse"
_QUANTITY = "gains?|speed-?ups?|throughputs?|efficiency|efficiencies|factors?"
_TYPED = re.compile(
    rf"(?<![\w.-])(?!9[059]\s%\s+(?:confidence|(?:\w+\s+)?intervals?)\b){_NUMBER}[\s\u00a0-]*(?:{_UNIT})"
    rf"|\b(?:{_QUANTITY})\s*(?:(?:of|is|was|are|were)\b\s*(?:about\s+)?(?:{_NUMBER}|(?:{_WORDS})\b)|[=:]\s*{_NUMBER})",
)
_SPELLED = re.compile(
    rf"\b(?:{_WORDS})(?:[\s-](?:{_WORDS}))*[\s-]*(?:percent|per\s?cent|times|fold|seconds?|(?:(?:node|core|device|[GC]PU)[\s-])?hours?|minutes?)\b"
    rf"|\b(?:twice|thrice|half|double|triple)\s+(?:as|the|that|of|{_MORE}|{_QUANTITY}|speed|time)\b"
    rf"|\b(?:doubl|tripl|quadrupl)(?:es|ed)\b|\bhal(?:ves|ved)\b|\border\s+of\s+magnitude\b"
    rf"|\b(?:a|one|two|three)[\s-](?:third|quarter|tenth)s?\s+(?:of\s+the|{_MORE})\b|\bfactors?\s+of\s+(?:{_WORDS})\b",
    re.I,
)

_TEXTS = pf.Para | pf.Plain | pf.Header | pf.LineItem | pf.MetaInlines


def lint(tree: pf.Doc) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The refused passages of a document, each with the reason, and (passage, class) of the allowed ones."""
    refused: list[tuple[str, str]] = []
    allowed: list[tuple[str, str]] = []

    def visit(element: pf.Element, doc: pf.Doc) -> pf.Element | list | None:
        """Parts come before the whole, so a text is read when all of its passages are replaced."""
        if isinstance(element, pf.Note):
            return []  # no part of its sentence
        if isinstance(element, pf.Cite):
            return pf.Str(CITED)
        if isinstance(element, pf.Code | pf.Math):
            return pf.Str(NEUTRAL)
        if isinstance(element, pf.Span):
            if kinds := CLASSES.keys() & element.classes:
                allowed.append((pf.stringify(element), kinds.pop()))
                return pf.Str(QUOTED if "cited" in element.classes else NEUTRAL)
            if {"cell", "claim"} & {*element.classes}:
                return pf.Str(NEUTRAL)
        if isinstance(element, _TEXTS):
            text = pf.stringify(element)
            refused.extend(typed(text))
            for sentence in re.split(r"(?<=[.!?;])\s+(?=[A-Z\W])", text):
                if QUOTED in sentence and CITED not in sentence:
                    refused.append((f"[{allowed[-1][0]}]{{.cited}}", "stands in a sentence that cites nothing"))
        return None

    copy.deepcopy(tree).walk(visit)
    return refused, allowed


def typed(text: str) -> Iterator[tuple[str, str]]:
    """The quantities of a text without markup, each with the reason why it is refused."""
    for match in _TYPED.finditer(text):
        yield " ".join(match[0].split()), f"is typed by hand: cite a cell, or give it a class ({LISTED})"
    for match in _SPELLED.finditer(text):
        yield match[0], "is a quantity in words"
