"""The performance model: what it computes by hand, what a fit finds again, what it dares to say beyond its data."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.analyze.model import fit
from hpc_utils.analyze.model.step import PHASES, Bucket, Costs, Line, Work, expected_maximum, packed, step
from hpc_utils.records import probes

from ..runs import run

MIB = 2**20
GRADIENTS = tuple(Bucket(10e6, (number + 1) / 4) for number in range(4))


def work(bucket_mb: float = 25.0, **changes) -> Work:
    """A step of 0.1 s + 10 ms a sample, four gradients of 10 MB that come evenly."""
    parts = {
        "data": Line(0.0, 0.0005),
        "forward": Line(0.02, 0.003),
        "backward": Line(0.06, 0.006),
        "optimizer": Line(0.02, 0.0005),
        "buckets": packed(GRADIENTS, bucket_mb),
    }
    return Work(**parts | changes)


FREE = Costs(scale=1.0, group=0.0, host=0.0, reach=1.0, latency=0.0)


def point(ranks: int, gbit: float = math.inf, batch: float = 10, grouped: bool = True) -> SimpleNamespace:
    """`ranks` nodes of one rank."""
    return SimpleNamespace(
        nodes=ranks, ranks_per_node=1, world_size=ranks, grouped=grouped, batch_per_device=batch, gbit=gbit
    )


# -- a step ----------------------------------------------------------------------------------------------------------


def test_buckets_are_closed_by_the_gradient_that_fills_them():
    assert packed(GRADIENTS, 15e6 / MIB) == (Bucket(20e6, 0.5), Bucket(20e6, 1.0))
    assert packed(GRADIENTS, 1e6 / MIB) == GRADIENTS
    assert packed(GRADIENTS, 1000) == (Bucket(40e6, 1.0),)


def test_what_the_backward_pass_hides_costs_nothing_and_the_rest_is_exposed():
    def exposed(gbit: float, bucket_mb: float = 1) -> float:
        return step(work(bucket_mb), FREE, point(2, gbit)).bandwidth

    assert exposed(3.2, bucket_mb=1000) == pytest.approx(40e6 / 0.4e9)  # ready at the very end: all of it
    # Backward takes 0.12 s; buckets are ready at 0.03, 0.06, 0.09, 0.12 and take 0.025 each: the last is exposed.
    assert exposed(3.2) == pytest.approx(0.025)
    assert exposed(0.32) == pytest.approx(0.03 + 4 * 0.25 - 0.12)
    for gbit, limit in ((0.32, "communication: bandwidth"), (1000, "computing")):
        assert step(work(1), FREE, point(2, gbit)).bottleneck == limit


def test_the_processor_s_part_delays_the_pass_however_much_of_it_is_overlapped():
    for batch in (1, 10):  # a pass that is shorter, and one that is longer, than what the processor works
        with_it = step(work(1), FREE._replace(host=2e-9), point(2, batch=batch))
        assert with_it.host == pytest.approx(40e6 * 2e-9)
        assert with_it.seconds == pytest.approx(0.1 + 0.01 * batch + 0.08)


def test_the_slower_of_wire_and_processor_counts_and_is_what_limits():
    wire = {8.0: 0.04, 0.8: 0.4}  # s for 40 MB, ready at the pass's end; the processor takes 0.1
    for gbit, seconds in wire.items():
        both = step(work(1000), FREE._replace(host=2.5e-9), point(2, gbit))
        assert both.bandwidth == pytest.approx(seconds)
        assert both.host + both.bandwidth == pytest.approx(max(seconds, 0.1))
        assert both.bottleneck == f"communication: {'processor' if seconds < 0.1 else 'bandwidth'}"


def test_many_small_buckets_are_limited_by_latency():
    slow = step(work(1000), FREE._replace(latency=0.01), point(64, 1000))
    assert slow.latency == pytest.approx(2 * 6 * 0.01, rel=0.01)  # a tree's depth, up and down
    assert slow.bottleneck == "communication: latency"


def test_parts_add_up_and_one_rank_communicates_nothing():
    parts = step(work(jitter=0.05), TRUE, point(8, 1.0))
    assert sum(parts) == parts.seconds and all(part >= 0 for part in parts)
    assert step(work(jitter=0.05), TRUE, point(1, grouped=False)).seconds == pytest.approx(TRUE.scale * 0.2)
    assert step(work(), TRUE, point(1)).host == TRUE.group


def test_the_slowest_of_many_lags_as_draws_say():
    draws = np.random.default_rng(1).normal(size=(20_000, 64)).max(axis=1).mean()
    assert expected_maximum(64) == pytest.approx(draws, rel=0.02)
    assert expected_maximum(1) == 0


# -- fitting ---------------------------------------------------------------------------------------------------------

TRUE = Costs(scale=1.1, group=2e-3, host=8e-10, reach=0.8, latency=3e-4)


def measured(gbits, *, worlds=(2,), noise=0.01, repeats=3, seed=0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    layouts = [(1, False, math.inf), (1, True, math.inf)] + [
        (world, True, gbit) for world in worlds for gbit in gbits
    ]
    rows = []
    for batch in (8.0, 32.0):
        for world, grouped, gbit in layouts:
            run = vars(point(world, gbit, batch, grouped))
            true = step(work(), TRUE, SimpleNamespace(**run)).seconds
            for repeat in range(1, repeats + 1):
                seconds = true * math.exp(generator.normal(0, noise))
                rows.append(run | {"seconds": seconds, "run_id": f"{world}-{grouped:d}-{batch:g}-{gbit:g}-r{repeat}"})
    return pd.DataFrame(rows)


def test_runs_of_one_workload_on_one_device_make_a_family_whatever_their_link():
    def family(precision: str = "fp32", **other) -> dict:
        return run(2, 1.0, nodes=2, batch=16, precision=precision, parameters=10, bucket_mb=25.0, **other)

    rates = [family(link_gbit=gbit) for gbit in (None, 10.0, 1.0)]
    shares = [family("bf16", link_gbit=gbit, threads_per_rank=0.25) for gbit in (1.0, 3.0)]
    runs = pd.DataFrame([*rates, family("bf16"), *shares, family("tf32", oversubscribed=True)])
    assert [len(own) for own in fit.families(runs)] == [3, 2, 1], "a share of a core is no core"
    other = runs.assign(comm_hook=["none", "fp16", "powersgd", *[None] * 4], accumulate=[1, 1, 1, 2, *[None] * 3])
    assert [len(own) for own in fit.families(other)] == [2, 1], "other messages, or fewer of them"
    buckets = fit.families(runs.assign(bucket_mb=[25.0, 50.0, 50.0, None, 25.0, 25.0, 25.0]))
    assert sorted((len(own), *set(own.bucket_mb)) for own in buckets) == [(1, 25), (1, 25), (2, 25), (2, 50)]
    loops = fit.families(runs.assign(settings=["a", "a", "b", *["a"] * 4]))
    assert [len(own) for own in loops] == [2, 2, 1, 1], "another loop has another T(1)"
    assert fit.points(runs, gbit=100.0).gbit.tolist() == [100.0, 10.0, 1.0, 100.0, 1.0, 3.0, 100.0]
    assert fit.points(runs).seconds.tolist() == pytest.approx([0.1] * 7)


def test_a_change_of_the_last_digit_changes_no_cost(rehearsal):
    points, family_work = rehearsal
    signs = np.random.default_rng(0).choice([-1, 1], len(points))
    costs, changed_costs = (
        np.array(fit.fit(points.assign(seconds=points.seconds * (1 + change * signs)), family_work).costs)
        for change in (0, 1e-15)
    )
    assert changed_costs == pytest.approx(costs, rel=1e-5)


@pytest.fixture(scope="module")
def rehearsal() -> tuple[pd.DataFrame, Work]:
    """The committed runs of ResNet-18 on up to 12 nodes over four link rates."""
    folder = paths.reference() / "rehearsal"
    loaded = records.load(folder)
    family = fit.families(loaded.runs)[0]
    profiles = list(probes.read_probes("compute", folder))
    return fit.points(family), Work.of(family, loaded.epochs, profiles)


def test_costs_that_no_run_determines_do_not_widen_the_scatter():
    runs = measured([math.inf], noise=0.05)
    configurations = runs.groupby(fit.POINT).seconds.median().reset_index()
    fitted = fit.fit(runs, work())
    errors = fitted.predict(configurations).seconds / configurations.seconds - 1
    assert len(configurations) == 6
    assert 6 - 5 < fitted.freedom < 6 - 1
    assert fitted.residual**2 == pytest.approx((np.log1p(errors) ** 2).sum() / fitted.freedom, rel=1e-3)


def test_more_noise_widens_the_interval_and_a_step_measured_there_falls_into_it():
    away = measured([0.5], noise=0, repeats=1).query("world_size == 2")
    quiet, loud = (fit.fit(measured([math.inf, 1.0], noise=noise), work()).predict(away) for noise in (0.005, 0.1))
    assert (np.log(loud.seconds_high / loud.seconds_low) > 2 * np.log(quiet.seconds_high / quiet.seconds_low)).all()
    for predicted in (quiet, loud):
        assert away.seconds.between(predicted.seconds_low, predicted.seconds_high).all()


def test_beyond_what_was_measured_it_is_marked_as_extrapolation():
    fitted = fit.fit(measured([10.0, 1.0], worlds=(2, 4)), work())
    planned = [point(4, 1.0, batch=8), point(32, 1.0, batch=1), point(2, 0.1, batch=32)]
    inside, beyond, link = fitted.predict(pd.DataFrame(map(vars, planned))).extrapolation
    assert inside == "" and link == "0.1 Gbit/s (1 to 10 measured)"
    assert "32 ranks (1 to 4 measured)" in beyond and "1 samples a rank (8 to 32 measured)" in beyond


def test_one_configuration_is_no_base_for_a_model():
    with pytest.raises(ValueError, match="measure at least two"):
        fit.fit(measured([1.0]).query("world_size == 2 and batch_per_device == 8"), work())


# -- where the compute side comes from -------------------------------------------------------------------------------


def test_phases_of_runs_give_lines_against_the_batch_and_even_gradients():
    kinds = (("a", "none", 8), ("b", "none", 32), ("c", "ddp", 8))
    runs = pd.DataFrame(
        [run(1, 1.0, run_id=n, parallel=p, batch=b, parameters=10_000_000, bucket_mb=25.0) for n, p, b in kinds]
    )
    epochs = pd.DataFrame({"run_id": ["a", "b", "c"], "step_p50": 0.1, "step_p95": 0.1 * math.exp(1.645 * 0.03)})
    for phase in PHASES:
        epochs[f"{phase}_seconds"] = [0.01 + 0.001 * 8, 0.01 + 0.001 * 32, 9.9]
    alone = Work.of(runs, epochs)
    assert alone.forward == pytest.approx((0.01, 0.001)) and alone.jitter == pytest.approx(0.03)
    assert [bucket.size for bucket in alone.buckets] == [28e6, 12e6] and alone.buckets[-1].ready == 1
    grouped = Work.of(runs[runs.parallel == "ddp"], epochs)
    assert grouped.forward == pytest.approx((0, 9.9 / 8)) and "(ddp)" in grouped.source
    with pytest.raises(ValueError, match="one rank"):
        Work.of(runs.assign(world_size=2), epochs)
    with pytest.raises(ValueError, match="phases"):
        Work.of(runs, epochs.assign(forward_seconds=math.nan))
    with pytest.raises(ValueError, match="number of parameters"):
        Work.of(runs.assign(parameters=None), epochs)
