"""The performance model: what it computes by hand, what a fit finds again, what it dares to say beyond its data."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hpc_utils.allreduce_cost import Link, Topology
from hpc_utils.analyze.model import fit, validation
from hpc_utils.analyze.model.step import Bucket, Costs, Line, Work, expected_maximum, step
from hpc_utils.analyze.stats import Estimate

from ..runs import run

MIB = 2**20


def work(**changes) -> Work:
    """A step of 0.1 s + 10 ms a sample, four gradients of 10 MB that come evenly."""
    parts = {
        "data": Line(0.0, 0.0005),
        "forward": Line(0.02, 0.003),
        "backward": Line(0.06, 0.006),
        "optimizer": Line(0.02, 0.0005),
        "gradients": tuple(Bucket(10e6, (number + 1) / 4) for number in range(4)),
        "jitter": 0.0,
    }
    return Work(**parts | changes)


FREE = {"group": 1e-12, "host": 1e-18, "reach": 1.0, "latency": 1e-12, "drag": 1e-9}


def topology(ranks: int, gbit: float, latency: float = 0.0) -> Topology:
    return Topology(ranks, 1, Link(latency, gbit * 1e9 / 8), Link(0.0, math.inf))


# -- a step ----------------------------------------------------------------------------------------------------------


def test_buckets_are_closed_by_the_gradient_that_fills_them():
    packed = work().buckets(15e6 / MIB)
    assert packed == (Bucket(20e6, 0.5), Bucket(20e6, 1.0))
    assert work().buckets(1e6 / MIB) == work().gradients
    assert work().buckets(1000) == (Bucket(40e6, 1.0),)


def test_what_the_backward_pass_hides_costs_nothing_and_the_rest_is_exposed():

    def exposed(gbit: float, bucket_mb: float = 1, **costs: float) -> float:
        return step(work(), Costs(**FREE | costs), topology(2, gbit), 10, bucket_mb=bucket_mb).bandwidth

    assert exposed(3.2, bucket_mb=1000) == pytest.approx(40e6 / 0.4e9)  # ready at the very end: all of it
    # Backward takes 0.12 s; buckets are ready at 0.03, 0.06, 0.09, 0.12 and take 0.025 each: the last is exposed.
    assert exposed(3.2) == pytest.approx(0.025)
    assert exposed(0.32) == pytest.approx(0.03 + 4 * 0.25 - 0.12)
    # Each bucket takes 0.05 s beside the pass, ready every 0.03 s: 0.03-0.08, then 0.08-0.12 done to 0.8, the rest free.
    assert exposed(3.2, drag=1.0) == pytest.approx(0.025 - 0.04 / 2 + 2 * 0.025)
    assert exposed(3.2, drag=1e9) == pytest.approx(0.1)  # all of it is exposed
    for gbit, limit in ((0.32, "communication: bandwidth"), (1000, "computing")):
        assert step(work(), Costs(**FREE), topology(2, gbit), 10, bucket_mb=1).bottleneck == limit


def test_the_processors_part_delays_the_compute_that_it_overlaps():
    found = step(work(), Costs(**FREE | {"host": 1e-9}), topology(2, math.inf), 10, bucket_mb=1)
    assert found.host == pytest.approx(40e6 * 1e-9)  # overlapped or not, it is taken from the step
    assert found.seconds == pytest.approx(0.24)


def test_parts_add_up_and_one_rank_communicates_nothing():
    found = step(work(jitter=0.05), Costs(), topology(8, 1.0), 10, bucket_mb=25)
    assert sum(found[:-1]) == found.seconds and all(part >= 0 for part in found[:-1])
    alone = step(work(jitter=0.05), Costs(), topology(1, 1.0), 10, grouped=False, bucket_mb=25)
    assert alone.seconds == pytest.approx(0.2) and alone.algorithm == ""
    assert step(work(), Costs(), topology(1, 1.0), 10, bucket_mb=25).host == Costs().group


def test_the_slowest_of_many_lags_as_draws_say():
    draws = np.random.default_rng(1).normal(size=(20_000, 64)).max(axis=1).mean()
    assert expected_maximum(64) == pytest.approx(draws, rel=0.02)
    assert expected_maximum(1) == 0


# -- fitting ---------------------------------------------------------------------------------------------------------

TRUE = Costs(scale=1.1, group=2e-3, host=8e-10, reach=0.8, latency=3e-4, drag=0.2)


def measured(gbits, *, worlds=(2,), noise=0.01, repeats=3, seed=0, truth=TRUE) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    layouts = [(1, False, math.inf), (1, True, math.inf)] + [
        (world, True, gbit) for world in worlds for gbit in gbits
    ]
    rows = []
    for batch in (8.0, 32.0):
        for world, grouped, gbit in layouts:
            true = step(work(), truth, topology(world, gbit), batch, grouped=grouped, bucket_mb=25).seconds
            rows += [
                {"nodes": world, "ranks_per_node": 1, "world_size": world, "grouped": grouped, "batch_per_device": batch,
                 "gbit": gbit, "seconds": true * math.exp(generator.normal(0, noise)), "repeat": repeat,
                 "run_id": f"{world}-{grouped:d}-{batch:g}-{gbit:g}-r{repeat}"}
                for repeat in range(1, repeats + 1)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def test_rates_that_were_held_out_are_predicted():
    fitted, errors = fit.held_out(measured([math.inf, 10.0, 3.0, 1.0, 0.3]), work(), [3.0, 0.3])
    assert set(fitted.measured.gbit) == {math.inf, 10.0, 1.0}
    away = errors[errors.held_out]
    assert len(away) == 4 and away.error.abs().max() < 0.05
    assert ((away.low < away.measured) & (away.measured < away.high)).sum() >= 3
    assert "0.3 Gbit/s" in errors[errors.gbit == 0.3].extrapolation.iloc[0]


def test_runs_of_one_workload_on_one_device_make_a_family_whatever_their_link():
    def family(precision: str = "fp32", **other) -> dict:
        return run(2, 1.0, nodes=2, batch=16, precision=precision, parameters=10, bucket_mb=25.0, **other)

    rates = [family(link_gbit=gbit) for gbit in (None, 10.0, 1.0)]
    shares = [family("bf16", link_gbit=gbit, threads_per_rank=0.25) for gbit in (1.0, 3.0)]
    runs = pd.DataFrame([*rates, family("bf16"), *shares, family("tf32", oversubscribed=True)])
    assert [len(own) for own in fit.families(runs).values()] == [3, 2, 1], "a share of a core is no core"
    other = runs.assign(comm_hook=["none", "fp16", "powersgd", *[None] * 4], accumulate=[1, 1, 1, 2, *[None] * 3])
    assert [len(own) for own in fit.families(other).values()] == [2, 1], "other messages, or fewer of them"
    buckets = fit.families(runs.assign(bucket_mb=[25.0, 50.0, 50.0, None, 25.0, 25.0, 25.0]))
    assert sorted((len(own), *set(own.bucket_mb)) for own in buckets.values()) == [(1, 25), (1, 25), (2, 25), (2, 50)]
    loops = fit.families(runs.assign(settings=["a", "a", "b", *["a"] * 4]))
    assert [len(own) for own in loops.values()] == [2, 2, 1, 1], "another loop has another T(1)"
    assert fit.points(runs, gbit=100.0).gbit.tolist() == [100.0, 10.0, 1.0, 100.0, 1.0, 3.0, 100.0]
    assert fit.points(runs).seconds.tolist() == pytest.approx([0.1] * 7)


def test_costs_are_recovered_and_the_table_states_which_the_data_narrowed():
    table = fit.fit(measured([math.inf, 10.0, 1.0, 0.1]), work()).table().set_index("cost")
    for name in ("scale", "host", "reach"):
        assert table.low[name] <= getattr(TRUE, name) <= table.high[name] and table.significant[name]
    assert not table.significant["latency"]  # some messages of microseconds in a step of a third of a second


def test_a_reach_that_was_measured_is_believed_as_far_as_it_was_sure():
    narrow, wide = (Estimate(0.5, 0.5 / factor, 0.5 * factor, 3) for factor in (1.04, 4.0))
    points = measured([1.0])  # of a link that gradients get `TRUE.reach` of
    believed, doubted = (fit.fit(points, work(), reach=reach).costs.reach for reach in (narrow, wide))
    assert believed == pytest.approx(0.5, rel=0.1)
    assert abs(math.log(doubted / TRUE.reach)) < abs(math.log(believed / TRUE.reach))


def test_the_slower_of_wire_and_processor_counts_and_is_what_limits():
    wire = {8.0: 0.04, 0.8: 0.4}  # s for 40 MB, ready at the pass's end; the processor takes 0.08
    for gbit, seconds in wire.items():
        alone, both = (
            step(work(), Costs(**FREE | {"host": host}), topology(2, gbit), 10, bucket_mb=1000)
            for host in (1e-18, 2e-9)
        )
        assert alone.bandwidth == pytest.approx(seconds)
        expected = (0.08, 0.0) if seconds < 0.08 else (0.0, seconds)
        assert (both.host, both.bandwidth) == pytest.approx(expected, abs=1e-9)


def test_more_noise_widens_the_interval_and_a_step_measured_there_falls_into_it():
    grid = measured([0.5])[fit.POINT].drop_duplicates().query("world_size == 2")
    quiet = fit.fit(measured([math.inf, 1.0], noise=0.005), work()).predict(grid)
    loud = fit.fit(measured([math.inf, 1.0], noise=0.1), work()).predict(grid)
    assert ((loud.high / loud.low) > 1.3 * (quiet.high / quiet.low)).all()


def test_beyond_what_was_measured_it_is_marked_as_extrapolation():
    fitted = fit.fit(measured([10.0, 1.0], worlds=(2, 4)), work())
    found = fitted.scaling("strong", 32, [2, 4, 32], gbit=1.0)
    assert list(found.world_size) == [1, 2, 4, 32]
    assert found.extrapolation[1] == "" and "32 ranks (1 to 4 measured)" in found.extrapolation[3]
    assert "1 samples a rank (8 to 32 measured)" in found.extrapolation[3]
    assert "0.1 Gbit/s (1 to 10 measured)" in fitted.scaling("weak", 32, [2], gbit=0.1).extrapolation[1]


def test_scaling_counts_efficiency_against_one_rank_without_a_group():
    found = fit.fit(measured([10.0, 1.0]), work()).scaling("weak", 32, [2, 8, 1024], ranks_per_node=4, gbit=10)
    assert list(found.nodes) == [1, 1, 2, 256] and list(found.ranks_per_node) == [1, 2, 4, 4]
    evenly = fit.grid("weak", 32, [8, 12, 16], 12, 10)
    assert list(zip(evenly.nodes, evenly.ranks_per_node, strict=True)) == [(1, 8), (1, 12), (2, 8)]
    assert found.efficiency[0] == 1 and found.efficiency.is_monotonic_decreasing
    assert (found.speedup == found.efficiency * found.world_size).all()
    assert ((found.efficiency_low < found.efficiency) & (found.efficiency < found.efficiency_high))[1:].all()
    strong = fit.fit(measured([10.0, 1.0]), work()).scaling("strong", 32, [2, 8], gbit=10)
    assert strong.efficiency[2] == pytest.approx(strong.seconds[0] / strong.seconds[2] / 8)


def test_one_configuration_is_no_base_for_a_model():
    with pytest.raises(ValueError, match="measure at least two"):
        fit.fit(measured([1.0]).query("world_size == 2 and batch_per_device == 8"), work())


# -- where the compute side comes from -------------------------------------------------------------------------------


def test_a_profile_gives_lines_against_the_batch_and_gradients_in_order():
    batches = [
        {"batch": batch, "data": [0.0005 * batch] * 5, "forward": [0.02 + 0.003 * batch] * 5,
         "backward": [0.06 + 0.006 * batch] * 5, "optimizer": [0.02] * 5}
        for batch in (8, 16, 32)
    ]  # fmt: skip
    ready = [{"name": "last", "bytes": 4e6, "fraction": 0.2}, {"name": "first", "bytes": 8e6, "fraction": 1.0}]
    found = Work.from_profile({"batches": batches, "ready": ready, "name": "p"})
    assert found.backward == pytest.approx((0.06, 0.006)) and found.seconds(64) == pytest.approx(0.1 + 0.0095 * 64)
    assert found.gradients == (Bucket(4e6, 0.2), Bucket(8e6, 1.0)) and found.gradient_bytes == 12e6


def test_runs_give_the_same_from_their_phases_and_their_number_of_parameters():
    kinds = (("a", "none", 8), ("b", "none", 32), ("c", "ddp", 8))
    runs = pd.DataFrame([run(1, 1.0, run_id=n, parallel=p, batch=b, parameters=10_000_000) for n, p, b in kinds])
    epochs = pd.DataFrame({"run_id": ["a", "b", "c"], "step_p50": 0.1, "step_p95": 0.1 * math.exp(1.645 * 0.03)})
    for phase in ("data", "forward", "backward", "optimizer"):
        epochs[f"{phase}_seconds"] = [0.01 + 0.001 * 8, 0.01 + 0.001 * 32, 9.9]
    found = Work.from_runs(runs, epochs)
    assert found.forward == pytest.approx((0.01, 0.001)) and found.jitter == pytest.approx(0.03)
    assert found.gradient_bytes == pytest.approx(40e6) and found.gradients[-1].ready == 1
    grouped = Work.from_runs(runs[runs.parallel == "ddp"], epochs)
    assert grouped.forward.seconds(8) == pytest.approx(9.9) and "DDP on one rank" in grouped.source
    with pytest.raises(ValueError, match="one rank"):
        Work.from_runs(runs[:0], epochs)


def test_without_a_process_alone_efficiency_is_relative_to_ddp_on_one_rank():
    runs = measured([10.0, 1.0])
    alone, grouped = fit.fit(runs, work()), fit.fit(runs[runs.grouped], work())
    assert (alone.baseline, grouped.baseline) == ("none", "ddp")
    found = grouped.scaling("weak", 8, [2], gbit=10.0)
    one = runs[runs.grouped & (runs.world_size == 1) & (runs.batch_per_device == 8)].seconds.median()
    assert set(found.baseline) == {"ddp"} and found.seconds[0] == pytest.approx(one, rel=0.03)
    below = validation.efficiency_limits(found, 0.7)
    sentence, untested = validation.conclusions(pd.DataFrame(), below)
    assert "DDP on one rank" in sentence and "not validated" in untested
    assert not list(validation.conclusions(pd.DataFrame(), below[:0]))


def test_links_never_measured_and_a_baseline_never_measured_are_extrapolated():
    fitted = fit.fit(measured([1.0], worlds=(2, 4)), work())
    assert "100 Gbit/s (1 measured)" in fitted.scaling("weak", 32, [2], gbit=100).extrapolation[1]
    large = fitted.scaling("strong", 256, [8, 512], gbit=1.0)
    assert list(large.world_size) == [1, 8]  # no half samples
    assert large.extrapolation[0].startswith("256 samples a rank") and "T(1)" not in large.extrapolation[0]
    two = fitted.scaling("strong", 64, [2], gbit=1.0)
    assert two.extrapolation[1].startswith("T(1): 64 samples a rank")


def test_bottlenecks_are_stretches_of_rank_counts():
    found = fit.fit(measured([10.0, 1.0]), work()).scaling("strong", 256, [2, 4, 16, 64], gbit=1.0)
    stretches = validation.bottlenecks(found)
    assert stretches.from_ranks.iloc[0] == 2 and stretches.to_ranks.iloc[-1] == 64
    assert "communication: bandwidth" in set(stretches.bottleneck) and (stretches.kind == "strong").all()
    assert (stretches.from_ranks.iloc[1:].to_numpy() > stretches.to_ranks.iloc[:-1].to_numpy()).all()
