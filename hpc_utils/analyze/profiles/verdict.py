"""A verdict: what limits a run, by which thresholds, its confidence and evidence, and what to try.

A new verdict is a member of `Bound` and its thresholds here, and a rule in `losses`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# The thresholds that decide: shares of the time unless noted. A run within all of them has no bottleneck.
UTILISATION = 0.80  # the GPU is busy, at least
EXPOSED = 0.20  # in transfer and nothing computed, or copying inside and between devices and nothing else
WAITING = 0.10  # waiting for other ranks; a balanced run has some percent
LOADER = 0.05  # idle for data
COPIES = 0.10  # copying input and nothing else
EFFICIENCY = 0.50  # of its peak that a kernel should reach
LOW_INTENSITY = 0.50  # of the compute time in kernels that do few operations per byte
SHORT_KERNEL = 10_000  # ns; a launch costs the host about as much, so shorter kernels do not hide the next launch
LATENCY = 10_000  # ns from the call of a launch to its kernel, at most, on a device that has nothing else to do
LONG_GAP = 1_000_000  # ns; a longer gap between kernels is not the cost of a launch
LOAD = 0.10  # of a device's cores, used by other processes or stolen by the hypervisor; a profiler takes some percent
SLOWED = 1.25  # a profiled step over one without the profiler; a profiler takes some percent
STEPS = 5  # marked ones that suffice
MANY = 10  # kernels on each device: fewer show no pattern; operations a launch: more are replays of CUDA graphs
UNCLASSIFIED = 0.50  # of the compute time in kernels that no pattern knows: more casts doubt
BRIEF = 50_000  # ns; a bucket of 25 MB takes longer on nearly any link
MANY_BRIEF = 50  # all-reduces a step that are so brief: gradients are sent one by one
FORWARD = 0.30  # of all-reduces, that forward passes launch: more are of activations
LIKE = 0.10  # by which calls of matrix kernels a unit of work may differ in equal work
NEGLIGIBLE = 0.01  # of the time: advice that saves less is not given
IDLE = 1 / 3  # of the idle time, that a reason for it must take
EXPLAINED = 0.50  # of the remaining idle time that late launches or short gaps must explain
CAUSED = 0.50  # of all waiting that is for one rank, which is then the straggler
CHANCE = 0.01  # probability that a rank is last so often by chance; below it, it is so systematically

# The most that each share of `devices.Devices` should be.
LIMITS = {
    "wire": EXPOSED, "unseparated": EXPOSED, "waiting": WAITING, "loader": LOADER, "outside": LOADER, "copies": COPIES,
    "moves": EXPOSED,
}  # fmt: skip

HIGH, MEDIUM = 0.75, 0.4  # least confidence of these words


class Bound(StrEnum):
    """What limits a run."""

    COMPUTE = "compute-bound"
    COMMUNICATION = "communication-bound"
    STRAGGLER = "straggler-bound"
    INPUT = "input-bound"
    LAUNCH = "launch-bound"
    HOST = "host-bound"
    MEMORY = "memory-bound"
    BALANCED = "no single bottleneck"
    NOT_ENOUGH = "not enough evidence"


class Certainty(StrEnum):
    """The confidence in a verdict as a word."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


# When each verdict is reached, for readers.
WHEN = {
    Bound.INPUT: f"the device waits for data more than {LOADER:.0%} of the time",
    Bound.COMMUNICATION: f"more than {EXPOSED:.0%} of the time data are transferred and nothing is computed",
    Bound.STRAGGLER: f"more than {WAITING:.0%} of the time, and longer than the transfer, ranks wait for each other; "
    "if one rank causes it, it is named",
    Bound.LAUNCH: "the device idles in many short gaps, between short kernels or for kernels that the host launches late",
    Bound.HOST: f"the device idles in gaps longer than {LONG_GAP / 1e6:.0f} ms, because the host is busy elsewhere",
    Bound.MEMORY: "the device is busy with kernels that move bytes rather than compute, or with copies",
    Bound.COMPUTE: f"the device computes more than {UTILISATION:.0%} of the time, and no loss is beyond its threshold",
    Bound.BALANCED: f"no part is beyond its threshold, and the device computes less than {UTILISATION:.0%} of the time",
    Bound.NOT_ENOUGH: "too few operations, or the device is idle and nothing shows why",
}


class Evidence(NamedTuple):
    """A measured `value` in `unit`; None: not known. More (`sense` ">") or less ("<") than `threshold` is good. Without a
    threshold it is reported and decides nothing."""

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
        return self._asdict() | {"met": self.met}

    def __str__(self) -> str:
        value = "not known" if self.value is None else f"{self.value:,.4g} {self.unit}".rstrip()
        if self.threshold is None:
            return f"{self.name}: {value}"
        judged = {None: "", True: ", met", False: ", not met"}[self.met]
        return f"{self.name}: {value} (good: {self.sense} {self.threshold:g} {self.unit}{judged})"


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


def percent(name: str, share: float | None, sense: str = "", threshold: float | None = None) -> Evidence:
    """Evidence in %; a share of None or NaN is not known."""
    value, limit = (
        None if number is None or math.isnan(number) else rounded(100 * number) for number in (share, threshold)
    )
    return Evidence(name, value, "%", sense, limit)


class Advice(NamedTuple):
    """`action`: what to try. `gain`: what to expect, in words. `at_most`: throughput over today's; None: not known."""

    action: str
    gain: str
    at_most: float | None = None


def saving(share: float, *actions: str) -> list[Advice]:
    """Advice that can at most save this share of the time; none if that is less than `NEGLIGIBLE`. The gain is Amdahl's (1967), 1/(1 - share): an upper bound, as no
    part disappears entirely, and what was hidden behind it becomes visible."""
    most = 1 / (1 - min(max(share, 0.0), 0.99))
    if share < NEGLIGIBLE:
        return []
    return [Advice(action, f"at most {most:.2f}x ({share:.1%} of the time)", most) for action in actions]


class Doubt(NamedTuple):
    """A factor of the confidence, 0 to 1, and the reason, which is shown unless it is empty."""

    factor: float
    why: str = ""


@dataclass(frozen=True)
class Verdict:
    """What limits a run.

    Attributes:
        confidence: 0 to 1, a product: of how far the deciding share is from its threshold (0.5 at it, 1 at twice it), of
            how many steps and which part of the ranks were profiled, of a factor for each thing that is missing, and of one
            if another loss is nearly as large.
        reason: a sentence. evidence: the measurements. advice: what to try next. remarks: what the profiles lack.
    """

    bound: Bound
    confidence: float
    reason: str
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def certainty(self) -> Certainty:
        if self.confidence >= HIGH:
            return Certainty.HIGH
        return Certainty.MEDIUM if self.confidence >= MEDIUM else Certainty.LOW

    def as_json(self) -> dict:
        return {
            "bound": self.bound,
            "confidence": round(self.confidence, 2),
            "certainty": self.certainty,
            "reason": self.reason,
            "evidence": [item.as_json() for item in self.evidence],
            "advice": [
                {"try": proposal.action, "gain": proposal.gain, "at_most": proposal.at_most}
                for proposal in self.advice
            ],
            "remarks": list(self.remarks),
        }

    def lines(self) -> list[str]:
        """As text: the verdict, then evidence, advice and remarks, each on its line."""
        return [
            f"{self.bound} ({self.certainty} confidence, {self.confidence:.2f}: {self.reason})",
            *(f"  {item}" for item in self.evidence),
            *(f"  try: {proposal.action}: {proposal.gain}" for proposal in self.advice),
            *(f"  note: {remark}" for remark in self.remarks),
        ]


@dataclass(frozen=True)
class Loss:
    """A bound that is beyond its threshold.

    Attributes:
        share: of the time. margin: 0 at the threshold, 1 far from it. what: how the time is lost, in words.
        reason: a sentence; by default how much is lost. advice: what to try. doubts: what speaks against it.
    """

    bound: Bound
    share: float
    margin: float
    what: str = ""
    reason: str = ""
    advice: Sequence[Advice] = ()
    doubts: Sequence[Doubt] = ()

    def verdict(self, doubts: Sequence[Doubt], evidence: Iterable[Evidence], remarks: Sequence[str]) -> Verdict:
        """The verdict that this loss limits the run: all doubts follow the reason.

        Half of the confidence comes from the margin; doubts reduce all of it.
        """
        doubts = (*doubts, *self.doubts)
        confidence = (0.5 + 0.5 * self.margin) * math.prod(doubt.factor for doubt in doubts)
        reason = self.reason or f"{self.share:.0%} of the time is lost {self.what}"
        words = "; ".join([reason, *(doubt.why for doubt in doubts if doubt.why)])
        return Verdict(self.bound, confidence, words, tuple(evidence), tuple(self.advice), tuple(remarks))


def undecided(
    reason: str, advice: Sequence[Advice], remarks: Sequence[str], evidence: Iterable[Evidence] = ()
) -> Verdict:
    return Verdict(Bound.NOT_ENOUGH, 0.0, reason, tuple(evidence), tuple(advice), tuple(remarks))


def beyond(share: float, threshold: float) -> float:
    """The margin of a share that should be less: 0 at its threshold, 1 from twice it on."""
    return min(1.0, max(0.0, share / threshold - 1))


def within(limits: Iterable[tuple[float | None, float]]) -> float:
    """The margin of (share, threshold) that are all kept: that of the nearest, 1 if all shares are 0."""
    return max(0.0, min((1 - share / limit for share, limit in limits if share is not None), default=0.0))
