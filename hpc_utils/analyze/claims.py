"""Claims that check themselves: a sentence, the conditions under which it is true, and what the measured values say of them.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from hpc_utils import toml_config
from hpc_utils.toml_config import Strict

from .bounds import NOT_MEASURED, REFUTED, SUPPORTED, TOO_FEW, UNDECIDED, Bound, Wrong, decide
from .value import Value

VERDICTS = [REFUTED, NOT_MEASURED, TOO_FEW, UNDECIDED, SUPPORTED]  # worst first
REPEATS = 3  # fewer say nothing of how much a measurement varies

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_PLACE = re.compile(r"\{([^{}]*)\}")
_TYPED = re.compile(r"[0-9][0-9.,]*\s*(%|percent\b|times\b|x\b|-fold\b)")
_ELSEWHERE = re.compile(r"(?<![\w\\])\[?@\w[\w:-]*|\{\{|!\[|\[\^")  # what only a document's own text can resolve
_BLOCK = re.compile(r"\s|#|[-+*]\s|>|\(?(?:\d+|[A-Za-z]|[ivxIVX]+)[.)]\s|\||:::|```|~~~|\$\$|<")


class ClaimError(ValueError):
    """A claim cannot be read or judged: one line a fault, each with file and place."""

    exit_code = 2


class Condition(Strict):
    """One value against one bound, in the value's base unit: a share is 0.7, not 70 %.

    `called`: what to say instead of the value's name where a claim has several conditions. `unit`: of the bound, for what
    is not measured yet; a value in another unit is refused. `without_interval`: the value is a statistic of several points
    that has none, such as a model's worst error, and the number itself decides; else nothing is decided by a repeated
    measurement without an interval.
    """

    value: str = Field(min_length=1)
    at_least: float | None = Field(None, strict=True, allow_inf_nan=False)
    at_most: float | None = Field(None, strict=True, allow_inf_nan=False)
    is_: str | None = Field(None, alias="is", min_length=1)
    called: str = ""
    unit: str = ""
    without_interval: bool = Field(False, strict=True)

    @field_validator("called")
    @classmethod
    def _words_alone(cls, called: str) -> str:
        return _in_a_sentence(called)

    @model_validator(mode="after")
    def _one_bound(self) -> Condition:
        given = [name for name, bound in self._bounds() if bound is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none"
            raise ValueError(f"a condition has one of at_least, at_most and is; here: {said}")
        return self

    @property
    def bound(self) -> Bound:
        return next(Bound(kind, bound) for kind, bound in self._bounds() if bound is not None)

    def _bounds(self) -> list[tuple[str, float | str | None]]:
        return [("at_least", self.at_least), ("at_most", self.at_most), ("is", self.is_)]


class Claim(Strict):
    """`min_repeats`: with fewer a measured value decides nothing. `planned`: about what is not measured yet, so that a cell that
    is not there is no fault."""

    sentence: str = Field(min_length=1)
    tests: list[Condition] = Field(min_length=1)
    min_repeats: int = Field(REPEATS, ge=2, strict=True)
    planned: bool = Field(False, strict=True)

    @field_validator("sentence")
    @classmethod
    def _no_number_by_hand(cls, sentence: str) -> str:
        if block := _BLOCK.match(sentence):
            raise ValueError(
                f"it starts with {block[0]!r}, which Markdown takes for more than a sentence: start with a word"
            )
        if typed := _TYPED.search(_in_a_sentence(sentence)):
            raise ValueError(
                f"{typed[0]!r} is typed by hand: write {{at_least}} or {{at_most}}, and it is the test's bound"
            )
        return sentence

    @model_validator(mode="after")
    def _every_place_is_filled(self) -> Claim:
        for place in _PLACE.findall(self.sentence):
            self.meant(place)
        return self

    def meant(self, place: str) -> Condition:
        """The condition whose bound stands at `{place}` of the sentence.

        Raises:
            ValueError: none has such a bound, or several have.
        """
        kind, _, number = place.partition(".")
        having = [test for test in self.tests if test.bound.kind == kind]
        if number:
            chosen = self.tests[int(number) - 1 : int(number)] if number.isdigit() and int(number) else []
            having = [test for test in chosen if test.bound.kind == kind]
        if len(having) != 1:
            many = (
                f"{len(having)} conditions have it: write {{{kind}.1}} for the first"
                if having
                else "no condition has it"
            )
            raise ValueError(f"{{{place}}} in the sentence: {many}")
        return having[0]


def _in_a_sentence(text: str) -> str:
    """The text, if it can stand within any other.

    Raises:
        ValueError: it has several lines, or cites, refers or draws.
    """
    if "\n" in text.strip("\n"):
        raise ValueError("it has several lines: a claim is one sentence on one line")
    if found := _ELSEWHERE.search(text):
        raise ValueError(
            f"{found[0]!r} cannot stand in a claim: cite and refer in the text around {{{{claim:its-name}}}}"
        )
    return text


@dataclass(frozen=True)
class Tested:
    """One condition as judged: its value's name as the claim writes it, and that value (None: not measured)."""

    name: str
    bound: Bound
    found: Value | None
    verdict: str
    why: str


@dataclass(frozen=True)
class Judged:
    """A claim as judged.

    Attributes:
        sentence: with its bounds filled in.
        verdict: of `VERDICTS`, the worst of the conditions'.
        why: in words, each condition's value with its interval beside the bound.
        values: the names of what was measured and it rests on, as the claim writes them.
        planned: it says itself that something of it is not measured yet.
    """

    name: str
    sentence: str
    verdict: str
    why: str
    values: tuple[str, ...]
    tests: tuple[Tested, ...]
    planned: bool = False

    @property
    def holds(self) -> bool:
        return self.verdict == SUPPORTED

    @property
    def fails(self) -> bool:
        """It does not hold, although it does not say of itself that it is not measured yet."""
        return not (self.holds or (self.planned and self.verdict == NOT_MEASURED))


class Claims(dict[str, Claim]):
    """{name: claim} of one file, which `path` names in what is said of them."""

    path: Path = Path("claims")


def read(path: Path) -> Claims:
    """The claims of the file at `path`, as they stand there.

    Raises:
        FileNotFoundError: there is no such file.
        ClaimError: it is no such file, or a claim in it is wrong.
    """
    claims = Claims(toml_config.tables(path, Claim, ClaimError))
    claims.path = path
    if wrong := [name for name in claims if not NAME.fullmatch(name)]:
        raise ClaimError(
            "\n".join(f"{path}: {name}: a claim's name has lower-case letters, digits and -" for name in wrong)
        )
    return claims


def judge(
    claims: Mapping[str, Claim], find: Callable[[str], Value], say: Callable[[Value], str] | None = None
) -> list[Judged]:
    """Each claim's verdict, in their order.

    Args:
        find: the cell that a condition cites; raises LookupError where there is none, with the nearest ones.
        say: a value in words, with its interval if it has one; by default plainly.

    Raises:
        ClaimError: a cell that does not exist, or a bound that cannot be one of that value.
    """
    path = getattr(claims, "path", Claims.path)
    found, faults = [], []
    for name, claim in claims.items():
        tests = []
        for number, condition in enumerate(claim.tests, 1):
            try:
                tests.append(_test(condition, claim, find, say or plain))
            except Wrong as error:
                faults.append(f"{path}: {name}.tests.{number}: {error}")
        if len(tests) == len(claim.tests):
            found.append(_judged(name, claim, tests, say or plain))
    if faults:
        raise ClaimError("\n".join(faults))
    return found


def plain(value: Value) -> str:
    """`1.36 [1.25, 1.48]`, `72 % [64 %, 81 %]`, `4.6 % (5 repeats, no interval)`, or a text as it is."""

    def amount(number: float) -> str:
        return f"{100 * number:.3g} %" if value.unit == "share" else f"{number:.3g}"

    if isinstance(value.value, str):
        return value.value
    ends = f" ({value.repeats} repeats, no interval)" if value.repeats else ""
    if value.has_interval:
        ends = f" [{amount(value.low)}, {amount(value.high)}]"
    unit = "" if value.unit in ("share", "ratio", "count", "") else f" {value.unit}"
    return amount(value.value) + unit + ends


def _test(condition: Condition, claim: Claim, find: Callable[[str], Value], say: Callable[[Value], str]) -> Tested:
    name, bound = condition.value, condition.bound
    called = condition.called or (name if len(claim.tests) > 1 else "")
    lead = f"{called}: " if called else ""
    try:
        value = find(name)
    except LookupError as error:
        if not claim.planned:
            raise Wrong(f"{error}; or set planned = true") from None
        return Tested(name, bound, None, NOT_MEASURED, f"{lead}not measured yet")
    if condition.unit and condition.unit != value.unit:
        raise Wrong(f"{name} is in {value.unit!r}, not in {condition.unit!r}")
    verdict, why = decide(value, bound, claim.min_repeats, condition.without_interval)
    claimed = "" if bound.kind == "is" and verdict == SUPPORTED else f"{_claimed(condition, value.unit, say)} claimed"
    return Tested(name, bound, value, verdict, lead + ", ".join(filter(None, [say(value), claimed, why])))


def _judged(name: str, claim: Claim, tests: Sequence[Tested], say: Callable[[Value], str]) -> Judged:
    units = {test.name: test.found.unit for test in tests if test.found is not None}

    def fill(place: re.Match[str]) -> str:
        condition = claim.meant(place[1])
        return _amount(condition, units.get(condition.value, ""), say)

    return Judged(
        name, _PLACE.sub(fill, claim.sentence), min((test.verdict for test in tests), key=VERDICTS.index),
        "; ".join(test.why for test in tests), tuple(dict.fromkeys(units)), tuple(tests), claim.planned,
    )  # fmt: skip


def _claimed(condition: Condition, unit: str, say: Callable[[Value], str]) -> str:
    kind = condition.bound.kind.replace("_", " ")
    amount = _amount(condition, unit, say)
    return f'"{amount}"' if kind == "is" else f"{kind} {amount}"


def _amount(condition: Condition, unit: str, say: Callable[[Value], str]) -> str:
    """A bound as the sentence has it, all its digits and no more. What a ratio is called ("times"), the sentence says."""
    bound = condition.bound.bound
    unit = unit or condition.unit
    if isinstance(bound, str):
        return bound
    if unit in ("ratio", "count", ""):
        return f"{bound:g}"
    if unit == "share":
        return f"{100 * bound:.10g}\u00a0%"
    return say(Value("claims.bound", bound, unit, ""))
