"""What is found out about a machine: one verdict, the measured value, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

Facts = dict[str, Any]  # JSON-able; what one rank saw


class Verdict(StrEnum):
    """How it stands; `unknown` means that nobody can tell here, not that it is probably well."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


# The worst first: what one rank says wins over what is better on all others.
GRAVITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.PASS, Verdict.NOT_APPLICABLE)


@dataclass(frozen=True)
class Check:
    """One row of the report.

    Attributes:
        measured: the value with its unit. expected: what would pass. fix: what to do about it.
        where: host and rank, where it is not the same everywhere. name: what was looked at; given by the plan.
    """

    verdict: Verdict
    measured: str
    expected: str = ""
    fix: str = ""
    where: str = ""
    name: str = ""


@dataclass(frozen=True)
class Seen:
    """What one rank saw."""

    host: str
    rank: int
    facts: Facts

    @property
    def place(self) -> str:
        return f"{self.host} rank {self.rank}"


Judge = Callable[[Sequence[Seen]], Check]


def passed(measured: str, expected: str = "") -> Check:
    return Check(Verdict.PASS, measured, expected)


def failed(measured: str, expected: str, fix: str, where: str = "") -> Check:
    return Check(Verdict.FAIL, measured, expected, fix, where)


def unknown(measured: str, expected: str = "", fix: str = "") -> Check:
    return Check(Verdict.UNKNOWN, measured, expected, fix)


def not_applicable(why: str) -> Check:
    return Check(Verdict.NOT_APPLICABLE, why)


def worst(checks: Sequence[Check]) -> Check:
    """The gravest of `checks`, the first of several."""
    return min(checks, key=lambda check: GRAVITY.index(check.verdict))


def each(judge: Callable[[Facts], Check]) -> Judge:
    """Judge every rank's facts by themselves: the worst wins and names where it was found."""

    def judge_all(seen: Sequence[Seen]) -> Check:
        found = [(one, judge(one.facts)) for one in seen]
        gravest = worst([check for _, check in found])
        alike = [one for one, check in found if check.verdict == gravest.verdict]
        everywhere = len(alike) == len(found)
        return gravest if everywhere else replace(gravest, where=places(alike))

    return judge_all


def places(seen: Sequence[Seen], most: int = 4) -> str:
    """`node1 rank 0, node2 rank 4 and 3 more`."""
    named = ", ".join(one.place for one in seen[:most])
    return named + (f" and {len(seen) - most} more" if len(seen) > most else "")


def count(number: int, what: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def hosts(seen: Sequence[Seen]) -> dict[str, list[Seen]]:
    """Ranks by host, in the order in which they came."""
    found: dict[str, list[Seen]] = {}
    for one in seen:
        found.setdefault(one.host, []).append(one)
    return found
