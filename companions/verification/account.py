"""The account of a reproduced run, for the terminal and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hpc_utils.publish.formatting import ABSENT, aligned, bracketed, number

if TYPE_CHECKING:
    from hpc_utils.provenance.facts import Difference

    from .comparison import Judgement

SCHEMA = 1
# Keys as in `comparison`.
MEANING = {
    "agree": "all that could be judged agrees",
    "differ": "at least one quantity differs",
    "inconclusive": "nothing differs, but not everything is shown to agree: more repeats make intervals narrower",
}
PRINTED = {"B": ("MiB", 1 / 2**20), "s": ("ms", 1e3)}  # {unit: unit and factor in print}


def lines(head: str, judgements: Sequence[Judgement], apart: Sequence[Difference], verdict: str) -> Iterator[str]:
    """For the terminal: a table of quantities, the differences of code, software and machine, and the verdict."""
    yield from (head, "")
    yield from aligned([("", "then", "now", "now / then", "verdict"), *map(_row, judgements)], right=(1, 2))
    yield ""
    if apart:
        yield "Not the same as then:"
        yield from (f"  {difference.what}: {difference.then} then, {difference.now} now" for difference in apart)
    else:
        yield "Code, software and machine are the same as then, as far as they were recorded."
    yield from ("", f"{verdict}: {MEANING[verdict]}")


def record(
    run: str, judgements: Iterable[Judgement], apart: Iterable[Difference], verdict: str, **details: Any
) -> dict[str, Any]:
    """The same as a JSON object; null where a number is unknown."""
    judgement_rows = [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in judgement._asdict().items()
        }
        for judgement in judgements
    ]
    account = {"schema": SCHEMA, "run": run, **details, "verdict": verdict, "meaning": MEANING[verdict]}
    return account | {"judgements": judgement_rows, "differences": [difference._asdict() for difference in apart]}


def _row(judgement: Judgement) -> tuple[str, ...]:
    unit, scale = PRINTED.get(judgement.unit, (judgement.unit, 1.0))
    name = judgement.quantity if unit in ("", "sample", "step") else f"{judgement.quantity} ({unit})"
    old_text, new_text = (
        ABSENT if math.isnan(value) else number(value * scale) for value in (judgement.then, judgement.now)
    )
    ratio = bracketed(judgement.ratio, judgement.low, judgement.high, "{:.3f}".format)
    return (
        name,
        old_text,
        new_text,
        ratio,
        f"{judgement.verdict} ({judgement.why})" if judgement.why else judgement.verdict,
    )
