"""Claims that check themselves: a sentence, the conditions under which it is true, and the verdict of the measured values.

    [bf16-speed]                       # paper/claims.toml
    sentence = "bf16 trains the small network at least {at_least} times as fast at equal accuracy"
    tests = [
        { value = "avx512:speed-gains.marginal[study=optimization-cpu, step=bf16]", at_least = 1.2 },
        { value = "avx512:speed-learnt.verdict[study=optimization-cpu, step=bf16, measure=accuracy]", is = "equal" },
    ]

`{at_least}`, `{at_most}` and `{is}` stand for the bound of the only condition that has one, `{at_least.2}` for that of the
second condition. A claim holds if each of its conditions does; of several, the worst verdict is the claim's (`VERDICTS`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, field_validator, model_validator

from hpc_utils import toml_config
from hpc_utils.analyze import ablation
from hpc_utils.analyze.decide import Verdict, decide
from hpc_utils.analyze.profiles.verdict import Bound, Certainty
from hpc_utils.analyze.stats import Estimate
from hpc_utils.analyze.value import Value
from hpc_utils.plural import counted
from hpc_utils.toml_config import Strict

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"
TOO_FEW, NOT_MEASURED = "too few repeats", "not measured"
VERDICTS = [REFUTED, NOT_MEASURED, TOO_FEW, UNDECIDED, SUPPORTED]  # worst first
REPEATS = 3
SHARE_MOST = 2.0  # a larger bound is a percentage by mistake

# The words of each kind of text value, and the words that decide nothing.
FAMILIES = [
    (ablation.EQUAL, ablation.DIFFERS, ablation.UNKNOWN),
    tuple(Verdict),
    (ablation.FASTER, ablation.SLOWER, ablation.NOISE, ablation.SINGLE),
    tuple(Bound),
    tuple(Certainty),
]
OPEN = {
    ablation.UNKNOWN: UNDECIDED,
    Verdict.UNDECIDED: UNDECIDED,
    ablation.NOISE: UNDECIDED,
    ablation.SINGLE: TOO_FEW,
    Verdict.NOT_MEASURED: NOT_MEASURED,
    Bound.NOT_ENOUGH: UNDECIDED,
}

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_BOUND = re.compile(r"\{([^{}]*)\}")

Say = Callable[[Value], str]


class ClaimError(ValueError):
    """A claim cannot be read or judged: one line per fault, each with file and place."""

    exit_code = 2


class Wrong(ValueError):
    """The bound cannot be one of that value, or the value does not exist."""


class Condition(Strict):
    """One value against one bound, in the value's base unit: a share is 0.7, not 70 %.

    `called`: shown instead of the value's name where a claim has several conditions. `unit`: of the bound, before the value
    is measured; a value in another unit is refused.
    """

    value: str = Field(min_length=1)
    at_least: float | None = Field(None, strict=True, allow_inf_nan=False)
    at_most: float | None = Field(None, strict=True, allow_inf_nan=False)
    is_: str | None = Field(None, alias="is", min_length=1)
    called: str = ""
    unit: str = ""

    @model_validator(mode="after")
    def _one_bound(self) -> Condition:
        if [self.at_least, self.at_most, self.is_].count(None) != 2:
            raise ValueError("a condition has one of at_least, at_most and is")
        return self

    @property
    def kind(self) -> str:
        """at_least, at_most (numbers in the value's unit) or is (a text)."""
        bounds = {"at_least": self.at_least, "at_most": self.at_most, "is": self.is_}
        return next(kind for kind, bound in bounds.items() if bound is not None)

    @property
    def bound(self) -> float | str:
        return next(bound for bound in (self.at_least, self.at_most, self.is_) if bound is not None)

    def amount(self, unit: str, say: Say) -> str:
        """The bound as the sentence shows it, with all its digits; the sentence itself names the unit of a ratio ("times")."""
        bound = self.bound
        unit = unit or self.unit
        if isinstance(bound, str):
            return bound
        if unit in ("ratio", "count", ""):
            return f"{bound:g}"
        return f"{100 * bound:.10g}\u00a0%" if unit == "share" else say(Value("claims.bound", bound, unit, ""))


class Claim(Strict):
    """`sentence`: one line of plain text, without citations and markup. `min_repeats`: with fewer a measured value decides
    nothing. `planned`: about values that are not measured yet, so that a missing cell is no fault."""

    sentence: str
    tests: list[Condition] = Field(min_length=1)
    min_repeats: int = Field(REPEATS, ge=2, strict=True)
    planned: bool = Field(False, strict=True)

    @field_validator("sentence")
    @classmethod
    def _is_plain(cls, sentence: str) -> str:
        if not re.fullmatch(r"[\w{][^\n@\[\]<]*", sentence):
            raise ValueError(
                "it is one line that starts with a word, without citations and markup (no @, [, ] and <)"
            )
        return sentence

    @model_validator(mode="after")
    def _every_bound_is_known(self) -> Claim:
        for place in _BOUND.findall(self.sentence):
            self.meant(place)
        return self

    def meant(self, place: str) -> Condition:
        """The condition whose bound replaces `{place}` in the sentence.

        Raises:
            ValueError: no condition has such a bound, or several have.
        """
        having = [test for number, test in enumerate(self.tests, 1) if place in (test.kind, f"{test.kind}.{number}")]
        if len(having) != 1:
            raise ValueError(f"{{{place}}} in the sentence is the bound of {len(having)} conditions")
        return having[0]


class Tested(NamedTuple):
    """One judged condition: its value's name as the claim writes it, and that value (None: not measured)."""

    name: str
    found: Value | None
    verdict: str
    why: str


class Judged(NamedTuple):
    """A judged claim.

    Attributes:
        sentence: with its bounds filled in.
        verdict: of `VERDICTS`, the worst of the conditions'.
        why: the value of each condition with its interval, and the bound.
        tests: its conditions. planned: as in `Claim`.
    """

    name: str
    sentence: str
    verdict: str
    why: str
    tests: tuple[Tested, ...]
    planned: bool

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the measured values that it rests on, as the claim writes them."""
        return tuple(test.name for test in self.tests if test.found is not None)

    @property
    def fails(self) -> bool:
        """Whether it does not hold; a planned claim that is not measured yet does not fail."""
        return self.verdict != SUPPORTED and not (self.planned and self.verdict == NOT_MEASURED)


class Claims(dict[str, Claim]):
    """{name: claim} of one file, `path`."""

    path: Path = Path("claims")


def read_claims(path: Path) -> Claims:
    """The claims of the file at `path`, in their order.

    Raises:
        FileNotFoundError: there is no such file.
        ClaimError: the file is not TOML, or a claim in it is wrong.
    """
    claims = Claims(toml_config.read_tables(path, Claim, ClaimError))
    claims.path = path
    if invalid := [name for name in claims if not NAME.fullmatch(name)]:
        raise ClaimError(f"{path}: {invalid[0]}: a claim's name has lower-case letters, digits and -")
    return claims


def judge(claims: Claims, find: Callable[[str], Value], say: Say) -> list[Judged]:
    """Each claim's verdict, in their order.

    Args:
        find: the cell that a condition cites; raises LookupError where there is none, with the nearest ones.
        say: formats a value with its interval.

    Raises:
        ClaimError: a cell that does not exist, or a bound that cannot be one of that value.
    """
    judged = []
    faults = []
    for name, claim in claims.items():
        tests = []
        for number, condition in enumerate(claim.tests, 1):
            try:
                tests.append(_test(condition, claim, find, say))
            except Wrong as error:
                faults.append(f"{claims.path}: {name}.tests.{number}: {error}")
        verdict = min((test.verdict for test in tests), key=VERDICTS.index, default=NOT_MEASURED)
        why = "; ".join(test.why for test in tests)
        sentence = _sentence(claim, tests, say)
        judged.append(Judged(name, sentence, verdict, why, tuple(tests), claim.planned))
    if faults:
        raise ClaimError("\n".join(faults))
    return judged


def _sentence(claim: Claim, tests: list[Tested], say: Say) -> str:
    units = {test.name: test.found.unit for test in tests if test.found is not None}

    def fill(place: re.Match[str]) -> str:
        condition = claim.meant(place[1])
        return condition.amount(units.get(condition.value, ""), say)

    return _BOUND.sub(fill, claim.sentence)


def _test(condition: Condition, claim: Claim, find: Callable[[str], Value], say: Say) -> Tested:
    name = condition.value
    called = condition.called or (name if len(claim.tests) > 1 else "")
    lead = f"{called}: " if called else ""
    try:
        value = find(name)
    except LookupError as error:
        if not claim.planned:
            raise Wrong(f"{error}; or set planned = true") from None
        return Tested(name, None, NOT_MEASURED, f"{lead}not measured yet")
    if condition.unit and condition.unit != value.unit:
        raise Wrong(f"{name} is in {value.unit!r}, not in {condition.unit!r}")
    verdict, why = test(value, condition, claim.min_repeats)
    claimed = f"{condition.kind.replace('_', ' ')} {condition.amount(value.unit, say)} claimed"
    if condition.kind == "is":
        claimed = "" if verdict == SUPPORTED else f"{condition.bound} claimed"
    return Tested(name, value, verdict, lead + ", ".join(filter(None, [say(value), claimed, why])))


def test(value: Value, condition: Condition, min_repeats: int) -> tuple[str, str]:
    """(verdict, a remark beside the value and the bound).

    The whole 95 % interval on the right side supports, on the wrong side refutes; a bound inside it leaves undecided, and so
    does a repeated measurement without an interval. A value that is not repeated and has no interval (a count, a setting)
    is compared as it is.

    Raises:
        Wrong: a text against a number or the other way round, a text that this value can never be, a share's bound in
            percent.
    """
    is_text = condition.kind == "is"
    verdict = _of_text(value, condition.bound) if is_text else _of_number(value, condition)
    if verdict == NOT_MEASURED:
        return verdict, ""
    if 0 < value.repeats < min_repeats:
        return TOO_FEW, f"{value.repeats} of at least {min_repeats} repeats"
    if not is_text and verdict == UNDECIDED and value.has_interval:
        return verdict, "the bound lies in the interval"
    is_repeated = value.repeats and (value.has_interval or is_text)
    return verdict, counted(value.repeats, "repeat") if is_repeated else ""


def _of_number(value: Value, condition: Condition) -> str:
    limit = condition.bound
    if value.unit == "text":
        raise Wrong(f"{value.name} is a text ({value.value!r}): compare it with is")
    if value.unit == "share" and abs(limit) > SHARE_MOST:
        raise Wrong(f"{value.name} is a share: {limit:g} would be {100 * limit:g} %; write {limit / 100:g}")
    is_exact = not value.has_interval and not value.repeats
    ends = (value.value, value.value) if is_exact else (value.low, value.high)
    words = {Verdict.MET: SUPPORTED, Verdict.MISSED: REFUTED}
    return words.get(decide(Estimate(value.value, *ends, value.repeats), **{condition.kind: limit}), UNDECIDED)


def _of_text(value: Value, wanted: str) -> str:
    word = value.value
    if value.unit != "text":
        raise Wrong(f"{value.name} is a number ({word:g}): compare it with at_least or at_most")
    family = next((words for words in FAMILIES if word in words), (wanted,))
    if wanted not in family:
        raise Wrong(f"{value.name} is never {wanted!r}, but one of {', '.join(family)}")
    return SUPPORTED if word == wanted else OPEN.get(word, REFUTED)
