"""Dilated runs, undilated; and never pooled with measured ones."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils.analyze import scaling
from hpc_utils.analyze.dilation import undilated
from hpc_utils.analyze.emulation import against_computed

from .runs import REPEATS
from .test_scaling import run


def dilated(world: int, k: float | None, seconds: float = 2.0, **more: object) -> dict:
    """A weak-scaling run that stands for `seconds`, as it is recorded when slowed down by `k`."""
    one = run(world, seconds * (k or 1), batch=512 * world, **more)
    return one | {"emulated": k is not None, "dilation": k}


def test_times_and_rates_are_those_of_what_it_stands_for() -> None:
    frame = pd.DataFrame([dilated(1, None), dilated(1, 4)]).assign(step_p50=[0.5, 2.0], setup_seconds=1.0)
    found = undilated(frame)
    assert found.seconds.nunique() == found.step_p50.nunique() == found.throughput.nunique() == 1
    assert (found.throughput * found.seconds == found.samples).all()
    assert found.setup_seconds.tolist() == [1.0, 1.0], "setting up is not dilated"
    assert found.dilation.isna().tolist() == [True, False]
    pd.testing.assert_frame_equal(undilated(found), found)


def test_what_was_measured_is_never_rescaled() -> None:
    """A loop of somebody's own has convolutions, and calls one of its parameters dilation."""
    frame = pd.DataFrame([dilated(1, 4) | {"emulated": False}, dilated(1, 4) | {"emulated": None}, dilated(1, 4)])
    found = undilated(frame)
    assert found.seconds.tolist() == [8.0, 8.0, 2.0]
    assert found.dilation.tolist() == [4, 4, 1]


def test_a_curve_of_different_dilations_is_one_curve() -> None:
    """... and measured runs are no part of it."""
    runs = [dilated(1, 1, parallel="none"), dilated(2, 6, 2.5), dilated(4, 8, 4.0), dilated(8, None)]
    table = scaling.efficiency(pd.DataFrame(runs))
    weak = table[(table.kind == "weak") & (table.baseline == "none")]
    assert weak.world_size.tolist() == [1, 2, 4]
    assert weak.efficiency.tolist() == pytest.approx([1, 0.8, 0.5])


def test_emulated_runs_stand_beside_what_computed_the_same_and_nothing_else() -> None:
    """1.1 times what was computed on two nodes; the same ranks on one node, more threads, another machine are not,
    nor is what a profiler watched."""
    emulated = [dilated(2, 4, 2.2 * factor, nodes=2, link_gbit=1) for factor in REPEATS]
    computed = [dilated(2, None, 2.0 * factor, nodes=2, link_gbit=1) for factor in REPEATS]
    others = [
        {"nodes": 1},
        {"threads_per_rank": 2},
        {"hardware_id": "elsewhere"},
        {"parameters": 9},
        {"link_gbit": 10},
        {"profile": "torch"},
    ]
    measured = computed + [
        dilated(2, None, 9.0 * factor, **{"nodes": 2, "link_gbit": 1} | other)
        for other in others
        for factor in REPEATS
    ]
    (found,) = against_computed(pd.DataFrame(emulated), pd.DataFrame(measured)).to_dict("records")
    assert (found["computed_repeats"], found["emulated_repeats"]) == (3, 3)
    assert found["ratio"] == pytest.approx(1.1)
    assert found["low"] < 1.1 < found["high"]
