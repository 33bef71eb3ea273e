"""One value against one bound, judged by the value's interval."""

from __future__ import annotations

from typing import NamedTuple

from hpc_utils.plural import counted

from . import ablation
from .decide import Verdict, decide
from .profiles.verdict import Bound as ProfileBound
from .profiles.verdict import Certainty
from .stats import Estimate
from .value import Value

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
TOO_FEW, NOT_MEASURED = "too few repeats", "not measured"

# The words of each kind of text value, and the words that decide nothing.
FAMILIES = [
    (ablation.EQUAL, ablation.DIFFERS, ablation.UNKNOWN),
    tuple(Verdict),
    (ablation.FASTER, ablation.SLOWER, ablation.NOISE, ablation.SINGLE),
    tuple(ProfileBound),
    tuple(Certainty),
]
OPEN = {
    ablation.UNKNOWN: UNDECIDED,
    Verdict.UNDECIDED: UNDECIDED,
    ablation.NOISE: UNDECIDED,
    ablation.SINGLE: TOO_FEW,
    Verdict.NOT_MEASURED: NOT_MEASURED,
    ProfileBound.NOT_ENOUGH: UNDECIDED,
}
SHARE_MOST = 2.0  # a larger bound is a percentage by mistake


class Wrong(ValueError):
    """The bound cannot be one of that value, or the value does not exist."""


class Bound(NamedTuple):
    """`kind`: at_least, at_most (numbers in the value's unit) or is (a text)."""

    kind: str
    bound: float | str


def test(value: Value, bound: Bound, min_repeats: int) -> tuple[str, str]:
    """(verdict, a remark beside the value and the bound).

    The whole 95 % interval on the right side supports, on the wrong side refutes; a bound inside it leaves undecided, and so
    does a repeated measurement without an interval. A value that is not repeated and has no interval (a count, a setting)
    is compared as it is.

    Raises:
        Wrong: a text against a number or the other way round, a text that this value can never be, a share's bound in
            percent.
    """
    verdict = _text(value, bound) if bound.kind == "is" else _number(value, bound)
    if verdict == NOT_MEASURED:
        return verdict, ""
    if 0 < value.repeats < min_repeats:
        return TOO_FEW, f"{value.repeats} of at least {min_repeats} repeats"
    if bound.kind != "is" and verdict == UNDECIDED and value.has_interval:
        return verdict, "the bound lies in the interval"
    is_repeated = value.repeats and (value.has_interval or bound.kind == "is")
    return verdict, counted(value.repeats, "repeat") if is_repeated else ""


def _number(value: Value, bound: Bound) -> str:
    if value.unit == "text":
        raise Wrong(f"{value.name} is a text ({value.value!r}): compare it with is")
    limit = float(bound.bound)
    if value.unit == "share" and abs(limit) > SHARE_MOST:
        raise Wrong(f"{value.name} is a share: {limit:g} would be {100 * limit:g} %; write {limit / 100:g}")
    is_exact = not value.has_interval and not value.repeats
    ends = (value.value, value.value) if is_exact else (value.low, value.high)
    words = {Verdict.MET: SUPPORTED, Verdict.MISSED: REFUTED}
    return words.get(decide(Estimate(value.value, *ends, value.repeats), **{bound.kind: limit}), UNDECIDED)


def _text(value: Value, bound: Bound) -> str:
    word = value.value
    wanted = bound.bound
    if value.unit != "text":
        raise Wrong(f"{value.name} is a number ({word:g}): compare it with at_least or at_most")
    family = next((words for words in FAMILIES if word in words), (wanted,))
    if wanted not in family:
        raise Wrong(f"{value.name} is never {wanted!r}, but one of {', '.join(family)}")
    return SUPPORTED if word == wanted else OPEN.get(word, REFUTED)
