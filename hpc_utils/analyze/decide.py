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
    at_least: float = -np.inf,
    at_most: float = np.inf,
) -> Verdict:
    """Compare the whole interval of `estimate` with a bound, or the lowest and highest value allowed, in its unit.

    MET if all of the interval is on the right side (a bound belongs to it), MISSED if all of it is on the wrong side, UNDECIDED
    between the two and without an interval, NOT_MEASURED without a value.
    """
    if np.isnan(estimate.value):
        return Verdict.NOT_MEASURED
    if np.isnan(estimate.low) or np.isnan(estimate.high):
        return Verdict.UNDECIDED
    if at_least <= estimate.low and estimate.high <= at_most:
        return Verdict.MET
    return Verdict.MISSED if estimate.high < at_least or estimate.low > at_most else Verdict.UNDECIDED
