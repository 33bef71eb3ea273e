"""How a model is spread over ranks changes where things are and what they cost, not what is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hpc_utils import records
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records import checks
from hpc_utils.train import WorkloadError
from hpc_utils.train.blocks import blocks
from hpc_utils.train.microbatches import microbatches as cut
from hpc_utils.train.parallel import hooks
from hpc_utils.train.vision import MODELS

from . import stacked
from .conftest import ROOT, launch
from .on_two_strategies import COLD, RESUMED
from .support import BRIEF, distance, fit, same

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(600)  # one launch trains some forty models


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """What one launch of `on_two_strategies` left."""
    results = tmp_path_factory.mktemp("strategies")
    done = launch(2, HERE / "on_two_strategies.py", results, results=results, folder=ROOT, timeout=500)
    assert done.returncode == 0, done.stderr
    told = [json.loads((results / f"told.rank{rank}.json").read_text()) for rank in range(2)]
    folder = lambda name: results / "runs" / told[0][name]["run"]  # noqa: E731
    return SimpleNamespace(
        results=results,
        told=told,
        weights=lambda name: torch.load(folder(name) / "weights.pt", weights_only=True),
        tables=lambda name: records.load_run(folder(name)),
        of=lambda name, what: [rank[name][what] for rank in told],
    )


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("small buckets", "ddp"), ("copied buckets", "ddp"), ("static graph", "ddp"), ("zero1", "ddp"),
        ("own zero1", "own"), ("own fsdp, recomputed", "own fsdp"),
    ],
)  # fmt: skip
def test_what_only_moves_things_trains_the_same_bit_by_bit(two, name: str, like: str) -> None:
    assert same(two.weights(name), two.weights(like))


@pytest.mark.parametrize(
    ("name", "like", "most"),
    [
        ("fsdp", "ddp", 1e-5), ("own fsdp", "own", 1e-4), ("fp16 fsdp", "fp16", 1e-4),
        ("accumulated", "ddp", 1e-5), ("fsdp, accumulated", "fsdp", 1e-5),
        ("bf16 hook, accumulated", "bf16 hook", 1e-3),
    ],
)  # fmt: skip
def test_what_adds_up_in_another_order_trains_the_same_to_rounding(two, name: str, like: str, most: float) -> None:
    assert distance(two.weights(name), two.weights(like)) < most
    ours, theirs = two.tables(name), two.tables(like)
    for column in ("steps", "samples", "lr"):
        assert ours["epochs"][column].tolist() == theirs["epochs"][column].tolist()
    for column in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        assert ours["epochs"][column].tolist() == pytest.approx(theirs["epochs"][column].tolist(), rel=1e-4)
    assert ours["ranks"].samples.tolist() == theirs["ranks"].samples.tolist()


@pytest.mark.parametrize("name", ["fp16 hook", "bf16 hook"])
def test_halved_gradients_train_nearly_the_same(two, name: str) -> None:
    assert 1e-6 < distance(two.weights(name), two.weights("ddp")) < 2e-3


@pytest.mark.parametrize("name", ["powersgd", "powersgd, small buckets"])
def test_powersgd_sends_other_gradients_and_learns(two, name: str) -> None:
    assert distance(two.weights("straight powersgd"), two.weights("straight ddp")) > 1e-3, "it was not compressed"
    accuracy = two.tables(name)["epochs"].test_accuracy
    assert accuracy.iloc[-1] > 0.8


def test_gradients_are_reduced_once_a_step(two) -> None:
    for whole, in_parts in (("bf16 hook", "bf16 hook, accumulated"), ("fsdp", "fsdp, accumulated")):
        assert two.of(whole, "reduced") == two.of(in_parts, "reduced")
        assert min(two.of(whole, "reduced")) >= 15, "3 warm-up steps and 12"


@pytest.mark.parametrize(("ddp", "zero1", "fsdp"), [("ddp", "zero1", "fsdp"), ("own", "own zero1", "own fsdp")])
def test_what_is_sharded_is_a_part_on_every_rank(two, ddp: str, zero1: str, fsdp: str) -> None:
    weights, state = two.of(ddp, "weights")[0], two.of(ddp, "state")[0]
    assert two.of(ddp, "state") == [state, state] and two.of(zero1, "weights") == [weights, weights]
    assert sum(two.of(zero1, "state")) == state and min(two.of(zero1, "state")) > 0
    assert sum(two.of(fsdp, "weights")) == weights and max(two.of(fsdp, "weights")) < 0.6 * weights
    assert max(two.of(fsdp, "state")) < 0.6 * state


@pytest.mark.parametrize("name", COLD)
def test_the_warm_up_leaves_no_trace(two, name: str) -> None:
    assert distance(two.weights(f"cold {name}"), two.weights(f"straight {name}")) <= _rounding(name)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_ends_with_the_same_weights(two, name: str) -> None:
    """PowerSGD's to rounding: whichever thread finds its factors ready multiplies them."""
    ours, theirs = (f"{how} {name}" for how in ("resumed", "straight"))
    assert two.tables(ours)["run"]["restarts"] == 1
    assert distance(two.weights(ours), two.weights(theirs)) <= _rounding(name)
    for column in ("train_loss", "test_loss", "samples"):
        pairs = (two.tables(which)["epochs"][column].tolist() for which in (ours, theirs))
        assert next(pairs) == pytest.approx(next(pairs), rel=_rounding(name), abs=0)


def _rounding(name: str) -> float:
    return 1e-6 if name == "powersgd" else 0.0


def test_weights_are_whole_and_the_plain_models(two) -> None:
    for name in ("own fsdp", "own zero1"):
        model = stacked.Stack()
        model.load_state_dict(two.weights(name))
        assert int(model.blocks[0].norm.num_batches_tracked) == 12


def test_every_strategys_records_are_whole(two) -> None:
    loaded = records.load(two.results)
    assert loaded.refused == {} and set(loaded.unfinished.values()) <= {"failed"}
    assert {*loaded.runs.parallel} == {"ddp", "zero1", "fsdp"}
    assert not [fault for row in loaded.epochs.to_dict("records") for fault in checks.epoch_faults(row)]
    assert (loaded.epochs.test_loss > 0).all()
    phases = two.tables("accumulated")["steps"].dropna()
    assert phases[["data", "forward", "backward", "optimizer"]].sum(axis=1).tolist() == pytest.approx(
        phases.seconds.tolist()
    )
    flops = {name: two.tables(name)["run"]["flops_per_sample"] for name in ("ddp", "zero1", "fsdp")}
    assert flops["ddp"] > 0 and len({*flops.values()}) == 1


def test_an_optimizer_that_cannot_be_made_of_a_share_is_refused(two) -> None:
    for told in two.told:
        assert "zero1" in told["stubborn"] and "Stubborn(parameters, lr) failed" in told["stubborn"]


@pytest.mark.parametrize("parallel", ["zero1", "fsdp"])
def test_a_group_of_one_trains_the_same(results: Path, parallel: str) -> None:
    assert distance(fit_whole(parallel), fit_whole("none")) < 1e-6


def test_a_model_that_does_not_call_its_blocks_is_told_why_fsdp_cannot(results: Path) -> None:
    with pytest.raises(WorkloadError, match="without calling the block"):
        fit(**BRIEF | {"workload": "tests.train.stacked:reaching", "global_batch": 16, "parallel": "fsdp"})


def fit_whole(parallel: str) -> dict:
    result, _ = fit(**BRIEF, parallel=parallel, save_weights=True)
    return torch.load(result.path / "weights.pt", weights_only=True)


def test_accumulating_alone_is_the_whole_batchs_gradient(results: Path) -> None:
    (whole, ours), (parts, theirs) = (fit(**BRIEF, parallel="none", accumulate=n) for n in (1, 8))
    assert 0 < distance(ours, theirs) < 1e-5
    assert parts.tables()["run"]["samples"] == whole.tables()["run"]["samples"]


# -- micro-batches and blocks ------------------------------------------------------------------------------


def test_a_batch_of_anything_is_cut_along_its_samples() -> None:
    batch = (
        {"x": torch.arange(8.0).view(4, 2), "name": list("abcd"), "scale": torch.tensor(2.0)},
        (torch.arange(4), None),
    )
    first, second = cut(batch, 2)
    assert first[0]["x"].tolist() == [[0, 1], [2, 3]] and second[0]["x"].tolist() == [[4, 5], [6, 7]]
    assert (first[0]["name"], second[0]["name"]) == (["a", "b"], ["c", "d"])
    assert second[0]["scale"] == 2 and second[1][0].tolist() == [2, 3] and second[1][1] is None


def test_a_tensor_that_is_not_the_batchs_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"one of 4 samples holds a tensor of shape \(3, 3\)"):
        cut((torch.zeros(3, 3), torch.zeros(4)), 2)
    with pytest.raises(WorkloadError, match="accumulate=4 does not divide a batch of 6 samples"):
        cut((torch.zeros(6, 3), torch.zeros(6)), 4)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: MODELS["resnet18"](3, 10, "cifar", 32), {"BasicBlock": 8}),
        (lambda: MODELS["cnn"](3, 10, "cifar", 32), {"Conv2d": 2, "Linear": 2}),
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 3), {"TransformerEncoderLayer": 3}),
        (lambda: nn.ModuleDict({"inner": stacked.Stack()}), {"Block": 2}),
    ],
)
def test_blocks_are_what_a_model_is_a_stack_of(make: Callable[[], nn.Module], found: dict[str, int]) -> None:
    names = [type(block).__name__ for block in blocks(make())]
    assert {name: names.count(name) for name in names} == found


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"comm_hook": "powersgd", "warmup_steps": 0}, "powersgd with warmup_steps=0"),
        ({"comm_hook": "powersgd", "precision": "fp16"}, "remembers gradients, which fp16 scales"),
        ({"parallel": "fsdp", "bucket_mb": 50}, "bucket_mb=50 is DDP's, and parallel='fsdp' has none"),
    ],
)
def test_what_would_learn_or_change_nothing_is_refused(knobs: dict, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RunConfig(**knobs)


def test_powersgd_on_a_cpu_is_refused_where_torch_would_wait_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES="):
        hooks.register(None, "powersgd", torch.device("cpu"))
