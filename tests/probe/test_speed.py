"""What ranks compute and load: stragglers, and loaders too slow for training."""

from __future__ import annotations

import pytest

from hpc_utils import paths, provenance
from hpc_utils.config import RunConfig
from hpc_utils.probe import burn, loader
from hpc_utils.probe.check import Verdict
from hpc_utils.train import train

from .conftest import seen

RUN = {
    "workload": "cnn",
    "epochs": 1,
    "steps_per_epoch": 2,
    "global_batch": 64,
    "warmup_steps": 0,
    "evaluate_every": 0,
}


def rank(fp32: float, bf16: float = 100.0) -> dict:
    return {"device": "NVIDIA A100", "on": "cuda:0", "gflops": {"fp32": fp32, "bf16": bf16}}


def test_equal_ranks_pass() -> None:
    found = burn.judge(seen(rank(19500, 280000), rank(19000, 281000), rank(17000, 270000)))
    assert found.verdict is Verdict.PASS
    assert "19.0 TFLOP/s in fp32, 280.0 TFLOP/s in bf16" in found.measured


def test_a_straggler_is_named_with_its_device() -> None:
    found = burn.judge(seen(rank(100), rank(79) | {"on": "cuda:3"}, rank(101), rank(100)))
    assert found.verdict is Verdict.FAIL
    assert found.where == "node1 rank 1"
    assert "node1 rank 1 (cuda:3, NVIDIA A100) computes 79.0 GFLOP/s" in found.measured
    assert "--exclude" in found.fix


def test_four_fifths_of_the_median_are_enough() -> None:
    assert burn.judge(seen(rank(100), rank(81), rank(100))).verdict is Verdict.PASS


def test_one_rank_is_measured_and_not_judged() -> None:
    found = burn.judge(seen(rank(97)))
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "97.0 GFLOP/s" in found.measured


def images(rate: float, need: float | None) -> dict:
    return {"dataset": "cifar10", "rate": rate, "need": need}


@pytest.mark.parametrize(
    ("rate", "need", "verdict"),
    [(50_000, 3_000, Verdict.PASS), (5_000, 3_000, Verdict.FAIL), (50_000, None, Verdict.UNKNOWN)],
)
def test_a_loader_against_what_training_takes(rate, need, verdict) -> None:
    found = loader.judge(seen(images(rate, need)))
    assert found.verdict is verdict
    assert bool(found.fix) is (verdict is not Verdict.PASS)


def test_the_slowest_rank_counts() -> None:
    found = loader.judge(seen(images(50_000, 3_000), images(4_000, None)))
    assert (found.verdict, found.where) == (Verdict.FAIL, "node1 rank 1")
    assert "75%" in found.measured


def test_no_data_no_loader() -> None:
    assert loader.judge(seen({"dataset": None})).verdict is Verdict.NOT_APPLICABLE


def test_what_training_takes_is_read_from_runs_on_this_hardware(results, monkeypatch) -> None:
    assert loader.needed("digits") is None
    path = train(RunConfig(**RUN)).path
    (paths.runs() / "broken").mkdir()
    (paths.runs() / "broken/status.json").write_text('{"state": "complete"}')
    from hpc_utils import records

    assert loader.needed("digits") == pytest.approx(records.load_run(path)["run"]["throughput"])
    assert loader.needed("cifar10") is None
    monkeypatch.setattr(provenance, "hardware_id", lambda: "another")
    assert loader.needed("digits") is None
