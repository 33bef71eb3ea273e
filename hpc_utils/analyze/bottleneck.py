"""What limits a training run, from what profilers saw of its ranks: a verdict with its evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .timeline import Timeline

COMPUTE = "compute-bound"
COMMUNICATION = "communication-bound"
STRAGGLER = "straggler-bound"
INPUT = "input-bound"
LAUNCH = "launch-bound"
MEMORY = "memory-bound"
NOT_ENOUGH = "not enough evidence"


@dataclass(frozen=True)
class Evidence:
    """`value` in `unit`; `threshold` likewise, as text with its sense (`> 80`), "" for what is told but not judged by.

    `met`: whether the value is on the good side of the threshold; None where there is none or no value.
    """

    name: str
    value: float | None
    unit: str
    threshold: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Advice:
    """What to try, and the gain to expect from it at most, in words with its number."""

    action: str
    gain: str


@dataclass(frozen=True)
class Verdict:
    """What limits, and how sure that is.

    Attributes:
        bound: one of the constants above. confidence: 0 to 1. reason: why it is no more and no less.
        evidence: what was measured, what decides first. advice: the two or three things to try next.
        remarks: what the profiles lack.
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
        return "high" if self.confidence >= 0.75 else "medium" if self.confidence >= 0.4 else "low"

    def as_json(self) -> dict:
        """Plain values: bound, confidence, certainty, reason, evidence, advice (`try`, `gain`), remarks."""
        return {
            "bound": self.bound,
            "confidence": round(self.confidence, 2),
            "certainty": self.certainty,
            "reason": self.reason,
            "evidence": [
                vars(one) | {"value": one.value if one.value is None or math.isfinite(one.value) else None}
                for one in self.evidence
            ],
            "advice": [{"try": one.action, "gain": one.gain} for one in self.advice],
            "remarks": list(self.remarks),
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"{self.bound} (confidence: {self.certainty}, {self.confidence:.2f}; {self.reason})"]
        for one in self.evidence:
            value = "not known" if one.value is None else f"{one.value:.4g} {one.unit}".rstrip()
            sense = f"  (threshold {one.threshold}{one.unit and ' ' + one.unit})" if one.threshold else ""
            lines.append(f"  {one.name}: {value}{sense}")
        lines += [f"  try: {one.action}: {one.gain}" for one in self.advice]
        return lines + [f"  note: {remark}" for remark in self.remarks]


def judge(
    timelines: Sequence[Timeline],
    *,
    kernels: Mapping | None = None,
    phase_seconds: Mapping[str, float] | None = None,
) -> Verdict:
    """What limits the run that these timelines are of, one a rank and device.

    Args:
        kernels: columns as of `ncu.read`, if some kernels were measured by Nsight Compute.
        phase_seconds: mean seconds a step under data, forward, backward, optimizer (a run's own records): used where
            the profiles have no GPU events, or where there are no profiles.
    """
    return Verdict(NOT_ENOUGH, 0.0, "nothing was judged yet")
