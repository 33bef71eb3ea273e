"""What ranks compute and load: stragglers, and loaders too slow for training."""

from __future__ import annotations

import pytest

from hpc_utils import paths, provenance
from hpc_utils.config import RunConfig
from hpc_utils.doctor import speed
from hpc_utils.doctor.check import Verdict
from hpc_utils.train import train

from .conftest import seen


def ranks(*rates: float) -> list:
    """Ranks that compute so many GFLOP/s in fp32."""
    return seen(*({"device": "A100", "on": "cuda:0", "gflops": {"fp32": rate, "bf16": 1e5}} for rate in rates))


@pytest.mark.parametrize(
    ("rates", "verdict", "where"),
    [
        ((19500, 19000, 17000), Verdict.PASS, ""),
        ((100, 81, 100), Verdict.PASS, ""),  # four fifths of the median are enough
        ((100, 79, 101, 100), Verdict.FAIL, "node1 rank 1"),
        ((97,), Verdict.NOT_APPLICABLE, ""),
    ],
)
def test_stragglers(rates, verdict, where) -> None:
    found = speed.judge_compute(ranks(*rates))
    assert (found.verdict, found.where) == (verdict, where)


def test_clocks_are_judged_by_kind_of_device() -> None:
    cpu = {"governors": [], "driver": "", "mhz": 3000, "hot": None, "throttled": 0}
    gpu = {"before": None, "during": None, "after": None}
    assert speed.judge_clocks({"kind": "cpu", "clocks": {"before": cpu, "after": cpu}}).verdict is Verdict.PASS
    assert speed.judge_clocks({"kind": "cuda", "clocks": gpu}).verdict is Verdict.UNKNOWN


def loads(rate: float, needed: float | None) -> dict:
    return {"dataset": "cifar10", "rate": rate, "needed": needed}


@pytest.mark.parametrize(
    ("facts", "verdict", "where"),
    [
        ([loads(50_000, 3_000)], Verdict.PASS, ""),
        ([loads(50_000, 3_000), loads(4_000, None)], Verdict.FAIL, "node1 rank 1"),
        ([loads(50_000, None)], Verdict.UNKNOWN, ""),
        ([{"dataset": None}], Verdict.NOT_APPLICABLE, ""),
    ],
)
def test_the_slowest_loader_against_training(facts, verdict, where) -> None:
    found = speed.judge_loader(seen(*facts))
    assert (found.verdict, found.where) == (verdict, where)


def test_the_speed_of_training_is_that_of_runs_on_this_hardware(results, monkeypatch) -> None:
    from hpc_utils import records

    assert speed.trained("digits") is None
    sizes = {"epochs": 1, "steps_per_epoch": 2, "global_batch": 64, "warmup_steps": 0, "evaluate_every": 0}
    path = train(RunConfig(workload="cnn", **sizes)).path
    (paths.runs() / "broken").mkdir()
    (paths.runs() / "broken/status.json").write_text('{"state": "complete"}')
    assert speed.trained("digits") == pytest.approx(records.load_run(path)["run"]["throughput"])
    assert speed.trained("cifar10") is None
    monkeypatch.setattr(provenance, "hardware_id", lambda: "another")
    assert speed.trained("digits") is None
