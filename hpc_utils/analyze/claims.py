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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from hpc_utils import toml_config
from hpc_utils.toml_config import Strict

from .claim_tests import NOT_MEASURED, REFUTED, SUPPORTED, TOO_FEW, UNDECIDED, Bound, Wrong, decide
from .value import Value

VERDICTS = [REFUTED, NOT_MEASURED, TOO_FEW, UNDECIDED, SUPPORTED]  # worst first
REPEATS = 3

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
SIMILAR = 0.8  # of names: a table of a planned claim that exists nowhere, but is so similar to one, is misspelt
_BOUND = re.compile(r"\{([^{}]*)\}")
_ELSEWHERE = re.compile(r"(?<![\w\\])\[?@\w[\w:-]*|\{\{|!\[|\[\^")  # citations, references and figures
_BLOCK = re.compile(r"\s|#|[-+*]\s|>|\(?(?:\d+|[A-Za-z]|[ivxIVX]+)[.)]\s|\||:::|```|~~~|\$\$|<")  # Markdown blocks
_TABLE = re.compile(r"(?:[a-z0-9-]+:)?([a-z0-9_-]+)")  # of a citation

Say = Callable[[Value], str]


class ClaimError(ValueError):
    """A claim cannot be read or judged: one line per fault, each with file and place."""

    exit_code = 2


class Condition(Strict):
    """One value against one bound, in the value's base unit: a share is 0.7, not 70 %.

    `called`: shown instead of the value's name where a claim has several conditions. `unit`: of the bound, before the value
    is measured; a value in another unit is refused. `without_interval`: the value is a statistic of several points that has
    no interval, such as a model's worst error, and the number itself decides.
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
    def _plain(cls, called: str) -> str:
        return _plain_text(called)

    @model_validator(mode="after")
    def _one_bound(self) -> Condition:
        if len(self._bounds()) != 1:
            given = " and ".join(bound.kind for bound in self._bounds()) or "none"
            raise ValueError(f"a condition has one of at_least, at_most and is; here: {given}")
        return self

    @property
    def bound(self) -> Bound:
        return self._bounds()[0]

    def _bounds(self) -> list[Bound]:
        bounds = Bound("at_least", self.at_least), Bound("at_most", self.at_most), Bound("is", self.is_)
        return [bound for bound in bounds if bound.bound is not None]


class Claim(Strict):
    """`min_repeats`: with fewer a measured value decides nothing. `planned`: about values that are not measured yet, so that a
    missing cell is no fault."""

    sentence: str = Field(min_length=1)
    tests: list[Condition] = Field(min_length=1)
    min_repeats: int = Field(REPEATS, ge=2, strict=True)
    planned: bool = Field(False, strict=True)

    @field_validator("sentence")
    @classmethod
    def _plain(cls, sentence: str) -> str:
        if block := _BLOCK.match(sentence):
            raise ValueError(f"it starts with {block[0]!r}, which is Markdown: start with a word")
        return _plain_text(sentence)

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
        kind, _, number = place.partition(".")
        having = [
            test for count, test in enumerate(self.tests, 1) if test.bound.kind == kind and number in ("", str(count))
        ]
        if len(having) != 1:
            many = f"{len(having)} conditions have it: write {{{kind}.1}} for the first"
            raise ValueError(f"{{{place}}} in the sentence: {many if having else 'no condition has it'}")
        return having[0]


def _plain_text(text: str) -> str:
    """`text`, if it is one line without citations, references and figures; else ValueError."""
    if "\n" in text.strip("\n"):
        raise ValueError("it has several lines: a claim is one sentence on one line")
    if found := _ELSEWHERE.search(text):
        raise ValueError(f"{found[0]!r} cannot stand in a claim: write it in the text around {{{{claim:its-name}}}}")
    return text


@dataclass(frozen=True)
class Tested:
    """One judged condition: its value's name as the claim writes it, and that value (None: not measured)."""

    name: str
    bound: Bound
    found: Value | None
    verdict: str
    why: str


@dataclass(frozen=True)
class Judged:
    """A judged claim.

    Attributes:
        sentence: with its bounds filled in.
        verdict: of `VERDICTS`, the worst of the conditions'.
        why: the value of each condition with its interval, and the bound.
        values: the names of the measured values that it rests on, as the claim writes them.
        planned: as in `Claim`.
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
        """Whether it does not hold; a planned claim that is not measured yet does not fail."""
        return not (self.holds or (self.planned and self.verdict == NOT_MEASURED))


class Claims(dict[str, Claim]):
    """{name: claim} of one file, `path`."""

    path: Path = Path("claims")


def read(path: Path) -> Claims:
    """The claims of the file at `path`, in their order.

    Raises:
        FileNotFoundError: there is no such file.
        ClaimError: the file is not TOML, or a claim in it is wrong.
    """
    claims = Claims(toml_config.tables(path, Claim, ClaimError))
    claims.path = path
    wrong = [
        f"{path}: {name}: a claim's name has lower-case letters, digits and -"
        for name in claims
        if not NAME.fullmatch(name)
    ]
    if wrong:
        raise ClaimError("\n".join(wrong))
    return claims


def judge(
    claims: Mapping[str, Claim], find: Callable[[str], Value], say: Say | None = None, tables: Collection[str] = ()
) -> list[Judged]:
    """Each claim's verdict, in their order.

    Args:
        find: the cell that a condition cites; raises LookupError where there is none, with the nearest ones.
        say: formats a value with its interval; by default `plain`.
        tables: names of all known tables, to detect a misspelt one in a planned claim.

    Raises:
        ClaimError: a cell that does not exist, or a bound that cannot be one of that value.
    """
    path, say = getattr(claims, "path", Claims.path), say or plain
    found, faults = [], []
    for name, claim in claims.items():
        tests = []
        for number, condition in enumerate(claim.tests, 1):
            try:
                tests.append(_test(condition, claim, find, say, tables))
            except Wrong as error:
                faults.append(f"{path}: {name}.tests.{number}: {error}")
        if len(tests) == len(claim.tests):
            found.append(_judged(name, claim, tests, say))
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


def _test(
    condition: Condition, claim: Claim, find: Callable[[str], Value], say: Say, tables: Collection[str]
) -> Tested:
    name, bound = condition.value, condition.bound
    called = condition.called or (name if len(claim.tests) > 1 else "")
    lead = f"{called}: " if called else ""
    try:
        value = find(name)
    except LookupError as error:
        if not claim.planned:
            raise Wrong(f"{error}; or set planned = true") from None
        table = _TABLE.match(name)[1] if _TABLE.match(name) else name
        near = toml_config.nearest(table, tables, cutoff=SIMILAR)
        if near and table not in tables:
            raise Wrong(f"{name}: there is no table {table!r}: did you mean {near}?") from None
        return Tested(name, bound, None, NOT_MEASURED, f"{lead}not measured yet")
    if condition.unit and condition.unit != value.unit:
        raise Wrong(f"{name} is in {value.unit!r}, not in {condition.unit!r}")
    verdict, why = decide(value, bound, claim.min_repeats, condition.without_interval)
    claimed = _amount(condition, value.unit, say)
    claimed = f'"{claimed}"' if bound.kind == "is" else f"{bound.kind.replace('_', ' ')} {claimed}"
    shown = "" if bound.kind == "is" and verdict == SUPPORTED else f"{claimed} claimed"
    return Tested(name, bound, value, verdict, lead + ", ".join(filter(None, [say(value), shown, why])))


def _judged(name: str, claim: Claim, tests: list[Tested], say: Say) -> Judged:
    units = {test.name: test.found.unit for test in tests if test.found is not None}

    def fill(place: re.Match[str]) -> str:
        condition = claim.meant(place[1])
        return _amount(condition, units.get(condition.value, ""), say)

    verdict = min((test.verdict for test in tests), key=VERDICTS.index)
    why, sentence = "; ".join(test.why for test in tests), _BOUND.sub(fill, claim.sentence)
    return Judged(name, sentence, verdict, why, tuple(units), tuple(tests), claim.planned)


def _amount(condition: Condition, unit: str, say: Say) -> str:
    """A bound as the sentence shows it, with all its digits; the sentence itself names the unit of a ratio ("times")."""
    bound, unit = condition.bound.bound, unit or condition.unit
    if isinstance(bound, str):
        return bound
    if unit in ("ratio", "count", ""):
        return f"{bound:g}"
    return f"{100 * bound:.10g}\u00a0%" if unit == "share" else say(Value("claims.bound", bound, unit, ""))
