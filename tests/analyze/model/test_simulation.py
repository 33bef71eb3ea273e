"""Ranks that draw their times: what they cost each other, against what can be worked out."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze.model import fit, simulation
from hpc_utils.analyze.model.simulation import Noise
from hpc_utils.analyze.model.step import Bucket, Line, Work, expected_maximum

from ..runs import run

STEADY = Noise(np.ones(50), np.ones(3))


@pytest.fixture(scope="module")
def fitted() -> fit.Fitted:
    work = Work(Line(0, 0), Line(0, 0.01), Line(0, 0.02), Line(0.01, 0), (Bucket(1e6, 1.0),))
    points = pd.concat([grid(1, 2)] * 3)
    return fit.fit(points.assign(seconds=0.31 + 0.01 * points.grouped), work)


def grid(*worlds: int) -> pd.DataFrame:
    return fit.grid("weak", 10.0, worlds, 1, 10.0)


def test_equal_ranks_do_not_wait_and_take_the_models_time(fitted):
    found = simulation.replay(fitted, grid(1, 8, 1024), STEADY)
    assert (found.waiting == 0).all() and found.seconds.tolist() == pytest.approx(found.ideal.tolist())
    assert (found.p05 == found.p95).all()


def test_more_ranks_wait_longer_for_the_slowest(fitted):
    noise = Noise(np.exp(np.random.default_rng(2).normal(0, 0.05, 500)), np.ones(1))
    found = simulation.replay(fitted, grid(1, 8, 64, 1024), noise)
    assert found.waiting.is_monotonic_increasing and found.waiting[0] == 0
    step = found.ideal[2] * math.exp(0.05 * expected_maximum(64))
    assert found.seconds[2] == pytest.approx(step, rel=0.03)


def test_one_slow_rank_takes_all_others_with_it(fitted):
    found = simulation.one_slow_rank(fitted, grid(2, 512), STEADY, [1.0, 1.1, 1.5])
    assert found.longer[:2].tolist() == [1.0, 1.0]
    tenth = found[(found.slow == 1.1) & (found.world_size == 512)].iloc[0]
    alone = fitted.step(next(grid(1).itertuples()))
    assert tenth.seconds - tenth.ideal == pytest.approx(0.1 * (alone.data + alone.compute))
    assert tenth.waiting == pytest.approx(0.1 * (alone.compute) * 511 / 512 / tenth.seconds, rel=1e-6)


def test_what_stays_through_a_run_is_drawn_anew_for_each_run(fitted):
    stays = simulation.replay(fitted, grid(1), Noise(np.ones(50), np.array([1.0, 1.3])), seed=3)
    alone = fitted.step(next(grid(1).itertuples()))
    share = (stays.seconds[0] - stays.ideal[0]) / (0.3 * (alone.data + alone.compute))
    assert share * simulation.RUNS == pytest.approx(round(share * simulation.RUNS))  # of whole runs
    assert 0 < share < 1


def test_noise_is_read_from_runs_and_needs_enough_steps(monkeypatch):
    steps = {"a": [1.0, 2.0, 3.0] * 10, "b": [2.0] * 10}
    monkeypatch.setattr(
        simulation.records, "load_run", lambda path: {"steps": pd.DataFrame({"seconds": steps[path.name]})}
    )
    found = Noise.measured(["a", "b"])
    assert sorted(set(found.steps)) == [0.5, 1.0, 1.5] and len(found.steps) == 40
    assert found.ranks.tolist() == [1.0, 1.0]
    few = Noise.measured(["b"])
    assert not len(few.steps) and simulation.replay(None, grid(1, 2), few).empty


def test_noise_is_taken_from_the_batch_with_most_steps_on_one_rank():
    rows = [
        run(1, 1.0, parallel=parallel, batch=batch, steps=steps, run_id=name)
        for name, parallel, batch, steps in (("a", "none", 8, 10), ("b", "none", 8, 10), ("c", "none", 32, 15), ("d", "ddp", 8, 99))
    ]  # fmt: skip
    runs = pd.DataFrame(rows)
    assert simulation.longest(runs).run_id.tolist() == ["a", "b"]
    assert simulation.longest(runs[runs.parallel == "ddp"]).run_id.tolist() == ["d"]
    assert simulation.longest(runs.iloc[:0]).empty
