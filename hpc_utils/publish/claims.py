"""The text of a tested claim, for documents and for the messages of a build."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hpc_utils.analyze.claim_tests import NOT_MEASURED, REFUTED, SUPPORTED, TOO_FEW, UNDECIDED

if TYPE_CHECKING:
    from hpc_utils.analyze.claims import Judged

WORDS = {
    SUPPORTED: "the data support it",
    REFUTED: "the data refute it",
    UNDECIDED: "the data leave it undecided",
    TOO_FEW: "too few repeats to say",
    NOT_MEASURED: "not measured yet",
}


def statement(judged: Judged) -> str:
    """Sentence and verdict in Markdown: `bf16 is at least 1.2 times as fast (**the data support it**: 1.36 [1.25, 1.48] ...)`.
    Without a full stop, for use within a sentence."""
    verdict = f"**{WORDS[judged.verdict]}**"
    why = "" if judged.verdict == NOT_MEASURED and judged.planned else f": {judged.why}"
    return f"{judged.sentence} ({verdict}{why})"


def failing(claims: Iterable[Judged]) -> list[str]:
    """A line for each claim that does not hold and is not planned: `bf16-speed: refuted: ...`."""
    return [f"{one.name}: {one.verdict}: {one.why}" for one in claims if one.fails]
