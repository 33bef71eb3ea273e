"""One bound against a whole interval."""

from __future__ import annotations

import numpy as np
import pytest

from hpc_utils.analyze.decide import Verdict, decide
from hpc_utils.analyze.stats import UNKNOWN, Estimate

BETWEEN = Estimate(0.8, 0.7, 0.9, 3)


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        ({"at_least": 0.7}, Verdict.MET),
        ({"at_least": 0.71}, Verdict.UNDECIDED),
        ({"at_least": 0.9}, Verdict.UNDECIDED),
        ({"at_least": 0.91}, Verdict.MISSED),
        ({"at_most": 0.9}, Verdict.MET),
        ({"at_most": 0.89}, Verdict.UNDECIDED),
        ({"at_most": 0.69}, Verdict.MISSED),
        ({"at_least": 0.7, "at_most": 0.9}, Verdict.MET),
        ({"at_least": 0.75, "at_most": 1.0}, Verdict.UNDECIDED),
        ({"at_least": 0.91, "at_most": 1.0}, Verdict.MISSED),
        ({"at_least": 0.5, "at_most": 0.6}, Verdict.MISSED),
    ],
)
def test_the_whole_interval_decides(bound: dict, verdict: Verdict) -> None:
    assert decide(BETWEEN, **bound) == verdict


def test_without_an_interval_nothing_is_decided_and_without_a_value_nothing_is_measured() -> None:
    assert decide(Estimate(0.8, np.nan, np.nan, 1), at_least=0.1) == Verdict.UNDECIDED
    assert decide(UNKNOWN, at_least=0.1) == Verdict.NOT_MEASURED
