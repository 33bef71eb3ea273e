"""A judged claim in words: as a text prints it, and as a build lists it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hpc_utils.analyze.bounds import NOT_MEASURED, REFUTED, SUPPORTED, TOO_FEW, UNDECIDED

if TYPE_CHECKING:
    from hpc_utils.analyze.claims import Judged

NEAR = 0.9  # of 1: a letter or two apart

WORDS = {
    SUPPORTED: "the data support it",
    REFUTED: "the data refute it",
    UNDECIDED: "the data leave it undecided",
    TOO_FEW: "too few repeats to say",
    NOT_MEASURED: "not measured yet",
}


def statement(judged: Judged) -> str:
    """Sentence and verdict in Markdown: `bf16 is at least 1.2 times as fast (**the data support it**: 1.36 [1.25, 1.48] ...)`.
    Without an end mark, so that it may stand within a sentence."""
    verdict = f"**{WORDS[judged.verdict]}**"
    why = "" if judged.verdict == NOT_MEASURED and judged.planned else f": {judged.why}"
    return f"{judged.sentence} ({verdict}{why})"


def failing(claims: Iterable[Judged]) -> list[str]:
    """A line for each claim that does not hold, though it is no planned one: `bf16-speed: refuted: ...`."""
    return [f"{one.name}: {one.verdict}: {one.why}" for one in claims if one.fails]


def doubtful(claims: Iterable[Judged], names: Iterable[str]) -> list[str]:
    """A line for each planned claim about a name that nothing has but something nearly has: perhaps it is misspelt."""
    names, found = list(names), []
    for one in claims:
        for test in one.tests if one.planned else ():
            same = [name for name in names if name.rpartition(":")[0] == test.name.rpartition(":")[0]]
            near = difflib.get_close_matches(test.name, same, 1, NEAR) if test.found is None else []
            found += (
                [f"{one.name} is planned, and nothing is called {test.name}: did you mean {near[0]}?"] if near else []
            )
    return found
