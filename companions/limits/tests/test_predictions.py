"""What more ranks would give: efficiency against one rank, extrapolation named, and where it falls below a bound."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from companions.limits import predictions, validation
from hpc_utils.analyze.model import fit
from tests.analyze.model.test_fit import measured, work


@pytest.fixture(scope="module")
def fitted() -> fit.Fitted:
    return fit.fit(measured([10.0, 1.0, 0.3]), work())


def test_beyond_what_was_measured_it_is_marked_as_extrapolation():
    fitted = fit.fit(measured([10.0, 1.0], worlds=(2, 4)), work())
    curve = predictions.scaling(fitted, "strong", 32, [2, 4, 32, 64], gbit=1.0)
    assert list(curve.world_size) == [1, 2, 4, 32]  # no half samples
    assert curve.extrapolation[1] == "" and "32 ranks (1 to 4 measured)" in curve.extrapolation[3]
    assert "1 samples a rank (8 to 32 measured)" in curve.extrapolation[3]
    assert "0.1 Gbit/s (1 to 10 measured)" in predictions.scaling(fitted, "weak", 32, [2], gbit=0.1).extrapolation[1]
    assert "Gbit/s" not in predictions.scaling(fitted, "weak", 32, [2], ranks_per_node=2, gbit=0.1).extrapolation[1]
    large = predictions.scaling(fitted, "strong", 64, [2], gbit=1.0).extrapolation
    assert large[0].startswith("64 samples a rank") and large[1] == f"T(1): {large[0]}"


def test_scaling_counts_efficiency_against_one_rank_without_a_group():
    model = fit.fit(measured([10.0, 1.0]), work())
    weak = predictions.scaling(model, "weak", 32, [2, 8, 1024], ranks_per_node=4, gbit=10)
    assert list(weak.nodes) == [1, 1, 2, 256] and list(weak.ranks_per_node) == [1, 2, 4, 4]
    assert weak.efficiency[0] == 1 and weak.efficiency.is_monotonic_decreasing
    assert ((weak.efficiency_low < weak.efficiency) & (weak.efficiency < weak.efficiency_high))[1:].all()
    strong = predictions.scaling(model, "strong", 32, [2, 8], gbit=10)
    assert strong.efficiency[2] == pytest.approx(strong.seconds[0] / strong.seconds[2] / 8)
    assert strong.efficiency_low[2] < strong.efficiency[2] < strong.efficiency_high[2]


def test_more_ranks_than_that_promise_nothing() -> None:
    """Whatever the value, a lower bound of 59 % is no promise of 70 %."""
    curve = {
        "kind": "weak",
        "gbit": 10.0,
        "batch_per_device": 32,
        "world_size": [1, 2, 16],
        "bottleneck": "computing",
    }
    curve |= {"efficiency": [1, 0.9, 0.75], "efficiency_low": [1, 0.8, 0.59], "efficiency_high": [1, 1, 0.9]}
    below = predictions.efficiency_limits(pd.DataFrame(curve | {"extrapolation": ""}), 0.7)
    (sentence, _) = validation.conclusions(pd.DataFrame(), pd.DataFrame(), below)
    assert below.below_from.tolist() == [16] and "at least" not in sentence


def test_the_interval_s_ends_cross_where_they_do(fitted) -> None:
    frame = predictions.scaling(fitted, "weak", 8, [2, 8, 64, 1024], gbit=0.3)
    frame = frame.assign(
        efficiency=[1, 0.9, 0.6, 0.4, 0.1],
        efficiency_low=[1, 0.6, 0.4, 0.3, 0],
        efficiency_high=[1, 0.95, 0.9, 0.6, 0.2],
    )
    (row,) = predictions.efficiency_limits(frame, 0.7).to_dict("records")
    assert [row[f"below_{end}"] for end in ("from", "at", "to")] == [2, 8, 64]
    assert (row["world_size"], row["efficiency_low"]) == (2, 0.6), "by the bound, not by the value"
    assert (row["kind"], row["gbit"], row["batch"]) == ("weak", 0.3, 8)
    high = frame.assign(efficiency=0.9, efficiency_low=0.8, bottleneck="wire")
    (row,) = predictions.efficiency_limits(high, 0.7).to_dict("records")
    assert math.isnan(row["below_from"]) and (row["world_size"], row["bottleneck"]) == (1024, "wire")


def test_bottlenecks_are_stretches_of_rank_counts(fitted):
    curves = [predictions.scaling(fitted, kind, 256, [2, 4, 16, 64], gbit=10.0) for kind in ("strong", "weak")]
    stretches = predictions.bottlenecks(pd.concat(curves, ignore_index=True))
    strong = stretches[stretches.kind == "strong"]
    assert strong.from_ranks.iloc[0] == 2 and strong.to_ranks.iloc[-1] == 64
    assert "communication: bandwidth" in set(strong.bottleneck) and len(strong) > 1
    assert (strong.from_ranks.iloc[1:].to_numpy() > strong.to_ranks.iloc[:-1].to_numpy()).all()
    assert stretches[stretches.kind == "weak"].from_ranks.iloc[0] == 2
