"""Whether an estimate reaches a bound: the one decision of targets, claims, ablations, costs and reproductions."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from .stats import Estimate


class Verdict(StrEnum):
    """Of an estimate and a bound."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not measured"


def decide(
    estimate: Estimate,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    within: tuple[float, float] | None = None,
) -> Verdict:
    """Compare the whole interval of `estimate` with one bound, in its unit; `within` is the lowest and highest value allowed.

    MET if all of the interval is on the right side (a bound belongs to it), MISSED if all of it is on the wrong side, UNDECIDED
    between the two and without an interval, NOT_MEASURED without a value.
    """
    lowest, highest = within or (at_least, at_most)
    lowest = -np.inf if lowest is None else lowest
    highest = np.inf if highest is None else highest
    if np.isnan(estimate.value):
        return Verdict.NOT_MEASURED
    if np.isnan(estimate.low) or np.isnan(estimate.high):
        return Verdict.UNDECIDED
    if lowest <= estimate.low and estimate.high <= highest:
        return Verdict.MET
    return Verdict.MISSED if estimate.high < lowest or estimate.low > highest else Verdict.UNDECIDED
