"""The bounds, the thresholds that tell them apart, and what a verdict says.

Thresholds are shares of the time, unless they say otherwise. Better than these, and a run has no such bottleneck.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .remedies import Advice

COMPUTE = "compute-bound"
COMMUNICATION = "communication-bound"
STRAGGLER = "straggler-bound"
INPUT = "input-bound"
LAUNCH = "launch-bound"
MEMORY = "memory-bound"
NOT_ENOUGH = "not enough evidence"

UTILISATION = 0.80  # of the time the GPU is busy; less is a loss
EXPOSED = 0.20  # of the time on the wire and nothing computed; and of other copies inside a device
WAITING = 0.10  # of the time waiting for other ranks; a balanced run has some percent
LOADER = 0.05  # of the time idle for data
COPIES = 0.10  # of the time copying input with nothing beside it
EFFICIENCY = 0.50  # of its peak that a kernel should reach
LOW_INTENSITY = 0.50  # of the compute time in kernels that do few operations a byte
SHORT_KERNEL = 10_000  # ns; a launch costs the host about as much, so shorter ones do not hide the next launch
MANY = 10  # kernels on each device; fewer do not show a pattern
EXPLAINED = 0.50  # of the remaining idle time that late launches or short gaps must make up

HIGH, MEDIUM = 0.75, 0.4  # confidence from which on it is called so

# What a loss is, in words.
LOST = {
    COMMUNICATION: "on the wire",
    STRAGGLER: "waiting for other ranks",
    INPUT: "waiting for data",
    LAUNCH: "waiting for launches",
    MEMORY: "copying",
}


@dataclass(frozen=True)
class Doubt:
    """A factor of the confidence, 0 to 1, and why."""

    factor: float
    why: str


@dataclass(frozen=True)
class Loss:
    """A bound that is beyond its threshold: the `share` of the time that is lost, `margin` 0 at the threshold and 1 far from
    it, and what speaks against it."""

    bound: str
    share: float
    margin: float
    doubts: tuple[Doubt, ...] = ()

    def confidence(self, doubts: Sequence[Doubt] = ()) -> float:
        """Half of it comes from the margin, all of it shrinks by the doubts."""
        return (0.5 + 0.5 * self.margin) * math.prod(doubt.factor for doubt in (*doubts, *self.doubts))

    def verdict(
        self,
        reason: str,
        doubts: Sequence[Doubt],
        *,
        evidence: Iterable[Evidence],
        advice: Iterable[Advice],
        remarks: tuple[str, ...],
    ) -> Verdict:
        """That this is what limits: its reason with all doubts behind it, and at most three things to try."""
        words = "; ".join([reason, *(doubt.why for doubt in (*doubts, *self.doubts))])
        return Verdict(self.bound, self.confidence(doubts), words, tuple(evidence), tuple(advice)[:3], remarks)


def beyond(share: float, threshold: float) -> float:
    """The margin of a share that should be less: 0 at its threshold, 1 from twice it on."""
    return min(1.0, max(0.0, share / threshold - 1))


def within(limits: Iterable[tuple[float | None, float]]) -> float:
    """The margin of shares that are all less than their thresholds: that of the nearest, 1 if all are 0."""
    return max(0.0, min((1 - share / limit for share, limit in limits if share is not None), default=0.0))


@dataclass(frozen=True)
class Evidence:
    """`value` in `unit`, None: not known. Good is more (`sense` ">") or less ("<") than `threshold` in the same unit; `met`:
    whether it is. Without a threshold it is told, not judged by."""

    name: str
    value: float | None
    unit: str
    sense: str = ""
    threshold: float | None = None

    @property
    def met(self) -> bool | None:
        if self.threshold is None or self.value is None:
            return None
        return self.value > self.threshold if self.sense == ">" else self.value < self.threshold

    def as_json(self) -> dict:
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "sense": self.sense,
            "threshold": self.threshold,
            "met": self.met,
        }

    def __str__(self) -> str:
        value = "not known" if self.value is None else f"{self.value:,.4g} {self.unit}".rstrip()
        if self.threshold is None:
            return f"{self.name}: {value}"
        judged = {None: "", True: ", met", False: ", not met"}[self.met]
        return f"{self.name}: {value} (good: {self.sense} {self.threshold:g} {self.unit}{judged})"


@dataclass(frozen=True)
class Verdict:
    """What limits, and how sure that is.

    Attributes:
        bound: one of the constants above. confidence: 0 to 1. reason: what makes it so, as words.
        evidence: what was measured. advice: two or three things to try next. remarks: what the profiles lack.

    The confidence is a product: of how far the deciding share is from its threshold (0.5 at it, 1 at twice it), of how
    many steps and which part of the ranks were seen, of a factor for each thing that is missing, and of one if another
    loss is nearly as large.
    """

    bound: str
    confidence: float
    reason: str
    evidence: tuple[Evidence, ...] = field(default=())
    advice: tuple[Advice, ...] = field(default=())
    remarks: tuple[str, ...] = field(default=())

    @property
    def certainty(self) -> str:
        """The confidence as a word: high, medium, low."""
        return "high" if self.confidence >= HIGH else "medium" if self.confidence >= MEDIUM else "low"

    def as_json(self) -> dict:
        """Plain values: bound, confidence, certainty, reason, evidence (name, value, unit, sense, threshold, met), advice
        (try, gain, at_most), remarks."""
        return {
            "bound": self.bound,
            "confidence": round(self.confidence, 2),
            "certainty": self.certainty,
            "reason": self.reason,
            "evidence": [one.as_json() for one in self.evidence],
            "advice": [{"try": one.action, "gain": one.gain, "at_most": one.at_most} for one in self.advice],
            "remarks": list(self.remarks),
        }

    def lines(self) -> list[str]:
        """For people: the verdict, then evidence, advice and remarks, each on its line."""
        return [
            f"{self.bound} ({self.certainty} confidence, {self.confidence:.2f}: {self.reason})",
            *(f"  {one}" for one in self.evidence),
            *(f"  try: {one.action}: {one.gain}" for one in self.advice),
            *(f"  note: {remark}" for remark in self.remarks),
        ]
