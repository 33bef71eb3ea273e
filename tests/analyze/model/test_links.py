"""Links that are known, found again in the times that they would give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpc_utils.allreduce_cost import Link, Topology, ring
from hpc_utils.analyze.model import links

SIZES = tuple(4 * 4**power for power in range(14))


def record(true: Link, ranks: int, noise: float, seed: int = 0, repeats: int = 5, sizes=SIZES, bend=None):
    """What the ring over that link takes, with log-normal noise; `bend(size, seconds)` makes it another link."""
    spread = np.random.default_rng(seed)
    times = {size: ring(size, Topology(ranks, 1, true, true)) for size in sizes}
    samples = [
        {"bytes": size, "seconds": list((bend or (lambda _, s: s))(size, time) * np.exp(spread.normal(0, noise, repeats)))}
        for size, time in times.items()
    ]  # fmt: skip
    return {"groups": {"all": {"ranks": ranks, "nodes": ranks, "ranks_per_node": 1, "samples": samples}}}


def test_latency_and_bandwidth_are_recovered_and_lie_in_their_intervals() -> None:
    trials, covered = 40, {"latency": 0, "bandwidth": 0}
    for seed in range(trials):
        draw = np.random.default_rng(seed)
        true = Link(10 ** draw.uniform(-6, -3), 10 ** draw.uniform(7, 11))
        ranks, noise = int(draw.choice([2, 4, 16])), float(draw.choice([0.01, 0.05, 0.15]))
        found = links.fit(record(true, ranks, noise, seed), "all")
        assert found.latency.value == pytest.approx(true.latency, rel=3 * noise)
        assert found.bandwidth.value == pytest.approx(true.bandwidth, rel=3 * noise)
        for name in covered:
            estimate = getattr(found, name)
            covered[name] += estimate.low <= getattr(true, name) <= estimate.high
    assert min(covered.values()) >= 0.85 * trials, covered


def test_a_rank_more_or_less_does_not_change_the_link() -> None:
    true = Link(20e-6, 12.5e9)
    records = [record(true, ranks, 0) for ranks in (2, 3, 64)]
    assert [links.fit(made, "all").bandwidth.value for made in records] == pytest.approx([12.5e9] * 3)
    modelled = links.times(records[2]).set_index("bytes").modelled
    assert modelled[2**20] == pytest.approx(ring(2**20, Topology(64, 1, true, true)))


def test_a_link_with_a_kink_is_reported_as_not_described() -> None:
    straight = links.fit(record(Link(50e-6, 1e9), 2, 0.02), "all")
    assert straight.caveat == ""
    kinked = record(Link(50e-6, 1e9), 2, 0.02, bend=lambda size, time: 3 * time if size >= 2**16 else time)
    kinked = links.fit(kinked, "all")
    assert kinked.worst > links.TOLERANCE
    assert " bytes" in kinked.caveat


def test_one_odd_size_does_not_bend_the_rest() -> None:
    odd = record(Link(50e-6, 1e9), 2, 0.01, bend=lambda size, time: 5 * time if size == 2**14 else time)
    found = links.fit(odd, "all")
    assert found.latency.value == pytest.approx(50e-6, rel=0.15)
    assert f"{2**14:,} bytes" in found.caveat


def test_messages_with_less_than_two_numbers_a_rank_are_no_ring() -> None:
    made = record(Link(1e-5, 1e9), 16, 0, bend=lambda size, time: 100 * time if size < 256 else time)
    assert links.fit(made, "all").latency.value == pytest.approx(1e-5)


def test_single_measurements_can_be_fitted_and_have_no_interval_of_their_own() -> None:
    single = record(Link(1e-5, 1e9), 2, 0.05, repeats=1)
    assert links.times(single).seconds_low.isna().all()
    found = links.fit(single, "all")
    assert found.bandwidth.low < 1e9 < found.bandwidth.high


def test_what_cannot_be_fitted_has_the_reason_and_no_numbers() -> None:
    few = record(Link(1e-5, 1e9), 2, 0, sizes=SIZES[:3])
    found = links.fit(few, "all")
    assert "2 sizes of 16 bytes or more, expected 3" in found.caveat and math.isnan(found.latency.value)
    assert links.times(few).modelled.isna().all()


def test_times_are_the_median_of_the_repeats() -> None:
    made = record(Link(0, 1e9), 4, 0, sizes=(2**20,))
    made["groups"]["all"]["samples"][0]["seconds"] = [2e-3, 1e-3, 4e-3]
    (row,) = links.times(made).to_dict("records")
    assert (row["group"], row["ranks"], row["bytes"], row["repeats"]) == ("all", 4, 2**20, 3)
    assert row["seconds"] == 2e-3 and row["seconds_low"] < 2e-3 < row["seconds_high"]
    assert math.isnan(row["modelled"]) and links.times(None).empty
