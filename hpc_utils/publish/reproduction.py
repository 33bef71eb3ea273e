"""How well a run was reproduced, as people and programs read it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import formatting

if TYPE_CHECKING:
    from hpc_utils.analyze.reproduction import Judgement
    from hpc_utils.provenance.facts import Difference

SCHEMA = 1
MIB = 2**20
# What each verdict on the whole means; keys as in `analyze.reproduction`.
MEANING = {
    "agree": "all that could be judged agrees",
    "differ": "at least one quantity differs",
    "cannot be told": "nothing differs, but not everything is shown to agree: more repeats make intervals narrower",
}
ABSENT = "–"


def lines(head: str, judgements: Sequence[Judgement], apart: Sequence[Difference], verdict: str) -> Iterator[str]:
    """The terminal's account: a table, what differs between then and now, and the verdict."""
    yield head
    yield ""
    rows = [("", "then", "now", "now / then", "verdict"), *map(_row, judgements)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        told = [
            row[0].ljust(widths[0]),
            *(row[column].rjust(widths[column]) for column in (1, 2)),
            row[3].ljust(widths[3]),
        ]
        yield "  ".join([*told, row[4]]).rstrip()
    yield ""
    if apart:
        yield "Not the same as then:"
        yield from (f"  {one.what}: {one.then} then, {one.now} now" for one in apart)
    else:
        yield "Code, software and machine are the same as then, as far as they were recorded."
    yield ""
    yield f"{verdict}: {MEANING[verdict]}"


def record(
    run: str, judgements: Iterable[Judgement], apart: Iterable[Difference], verdict: str, **more: Any
) -> dict[str, Any]:
    """The same as one JSON object; what is not known is null."""
    return {
        "schema": SCHEMA,
        "run": run,
        **more,
        "verdict": verdict,
        "meaning": MEANING[verdict],
        "judgements": [_plain(one._asdict()) for one in judgements],
        "differences": [one._asdict() for one in apart],
    }


def _row(one: Judgement) -> tuple[str, str, str, str, str]:
    unit, scale = ("MiB", 1 / MIB) if one.unit == "B" else ("ms", 1e3) if one.unit == "s" else (one.unit, 1.0)
    name = f"{one.quantity} ({unit})" if unit not in ("", "sample", "step") else one.quantity
    ratio = "" if math.isnan(one.ratio) else f"{one.ratio:.3f}"
    if not math.isnan(one.low):
        ratio += f" [{one.low:.3f}, {one.high:.3f}]"
    return (
        name,
        _number(one.then, scale),
        _number(one.now, scale),
        ratio,
        f"{one.verdict} ({one.why})" if one.why else one.verdict,
    )


def _number(value: float, scale: float) -> str:
    return ABSENT if math.isnan(value) else formatting.number(value * scale)


def _plain(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in told.items()}
