"""Parallel strategies change memory and communication, not the training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from hpc_utils import records
from hpc_utils.config import RunConfig
from hpc_utils.train import WorkloadError, loop, train
from hpc_utils.train.blocks import blocks
from hpc_utils.train.parallel import fsdp, hooks
from hpc_utils.train.pytree import microbatches
from hpc_utils.train.vision import MODELS

from . import stacked
from .forked import Two
from .support import BRIEF, PHASES, distance, fit, same, saved, stop

pytestmark = pytest.mark.timeout(600)  # two ranks train some forty models

CNN = {"workload": "cnn", "epochs": 2, "steps_per_epoch": 6, "global_batch": 32, "eval_batch": 50, "lr": 0.3}
CNN |= {"save_weights": True}
OWN = CNN | {"workload": "tests.train.stacked:make", "global_batch": 16, "eval_batch": 10, "lr": 0.02}
SEVERAL = OWN | {"workload": "tests.train.stacked:several"}  # optimizers
POWERSGD = CNN | {"comm_hook": "powersgd", "epochs": 4, "steps_per_epoch": 20, "global_batch": 64}

RUNS = {
    "ddp": CNN,
    "small buckets": CNN | {"bucket_mb": 0.1},
    "static graph": CNN | {"static_graph": True},
    "accumulated": CNN | {"accumulate": 4},
    "clipped": CNN | {"clip_norm": 0.1},
    "clipped zero1": CNN | {"clip_norm": 0.1, "parallel": "zero1"},
    "clipped fsdp": CNN | {"clip_norm": 0.1, "parallel": "fsdp"},
    "clipped fsdp, fp16": CNN | {"clip_norm": 0.1, "parallel": "fsdp", "precision": "fp16", "accumulate": 2},
    "fp16 hook": CNN | {"comm_hook": "fp16"},
    "bf16 hook": CNN | {"comm_hook": "bf16"},
    "bf16 hook, accumulated": CNN | {"comm_hook": "bf16", "accumulate": 4},
    "zero1": CNN | {"parallel": "zero1"},
    "fsdp": CNN | {"parallel": "fsdp"},
    "fsdp, accumulated": CNN | {"parallel": "fsdp", "accumulate": 4},
    "powersgd, small buckets": POWERSGD | {"bucket_mb": 0.05},
    "own": OWN,
    "own zero1": OWN | {"parallel": "zero1"},
    "own fsdp": OWN | {"parallel": "fsdp"},
    "own fsdp, recomputed": OWN | {"parallel": "fsdp", "activation_checkpointing": True},
}
RESUMED = {
    "ddp": OWN,
    "powersgd": OWN | {"comm_hook": "powersgd"},
    "zero1": OWN | {"parallel": "zero1"},
    "fsdp": OWN | {"parallel": "fsdp"},
    "several": SEVERAL,
    "several zero1": SEVERAL | {"parallel": "zero1"},
    "several fsdp": SEVERAL | {"parallel": "fsdp"},
    "fsdp, fp16": CNN | {"parallel": "fsdp", "precision": "fp16", "momentum": 0.0, "accumulate": 2},
}
COLD = {"ddp": 0, "powersgd": 1, "zero1": 0, "fsdp": 0}  # warm-up steps
SCATTER = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"  # FSDP's


def each_rank() -> dict:
    """What each of two ranks does."""
    reports: dict[str, dict] = {}
    reduced: list[int] = []
    held: dict[str, int] = {}

    class Inspected(loop.Trainer):
        def run(self) -> None:
            super().run()
            (optimizer,) = self.optimizers
            local = getattr(optimizer, "optim", optimizer)  # of ZeroRedundancyOptimizer: this rank's own
            state = [value for own in local.state.values() for value in own.values()]
            for name, values in (("state", state), ("weights", self.model.parameters())):
                own = [value.to_local() if isinstance(value, DTensor) else value for value in values]
                held[name] = sum(value.numel() for value in own if hasattr(value, "numel"))

    def counted(original: Callable) -> Callable:
        return functools.wraps(original)(lambda *given, **more: reduced.append(1) or original(*given, **more))

    with (
        mock.patch.object(hooks, "bf16_on_host", counted(hooks.bf16_on_host)),
        mock.patch.object(dist, SCATTER, counted(getattr(dist, SCATTER))),
        mock.patch.object(loop, "Trainer", Inspected),
    ):
        for name, parameters in RUNS.items():
            reduced.clear()
            reports[name] = {"run": train(RunConfig(**parameters)).run_id, "reduced": len(reduced)} | held
    for name, steps in COLD.items():
        reports[f"cold {name}"] = {"run": train(RunConfig(**RESUMED[name], warmup_steps=steps)).run_id}
    for name, parameters in RESUMED.items():
        reports[f"straight {name}"] = {"run": train(RunConfig(**parameters, repeat=2)).run_id}
        stop(parameters | {"repeat": 3}, 8)
        dist.destroy_process_group()  # all have left it in order
        reports[f"resumed {name}"] = {"run": train(RunConfig(**parameters, repeat=3)).run_id}
    return reports


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    return Two(each_rank, tmp_path_factory.mktemp("strategies"))


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("small buckets", "ddp"), ("static graph", "ddp"), ("zero1", "ddp"), ("clipped zero1", "clipped"),
        ("own zero1", "own"), ("own fsdp, recomputed", "own fsdp"),
    ],
)  # fmt: skip
def test_what_only_moves_things_trains_the_same_bit_by_bit(two: Two, name: str, like: str) -> None:
    assert same(two.saved(name), two.saved(like))


@pytest.mark.parametrize(
    ("name", "like", "most"),
    [
        ("fsdp", "ddp", 1e-5), ("clipped fsdp", "clipped", 1e-5), ("own fsdp", "own", 1e-4), ("accumulated", "ddp", 1e-5), ("fsdp, accumulated", "fsdp", 1e-5),
    ],
)  # fmt: skip
def test_what_adds_up_in_another_order_trains_the_same_to_rounding(
    two: Two, name: str, like: str, most: float
) -> None:
    assert distance(two.saved(name), two.saved(like)) < most
    ours, theirs = (two.tables(one)["epochs"] for one in (name, like))
    for column in ("samples", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        assert ours[column].tolist() == pytest.approx(theirs[column].tolist(), rel=1e-4)


def test_compressed_gradients_are_others_and_learn(two: Two) -> None:
    for name in ("fp16 hook", "bf16 hook"):
        assert 1e-6 < distance(two.saved(name), two.saved("ddp")) < 2e-3
    assert distance(two.saved("straight powersgd"), two.saved("straight ddp")) > 1e-3, "it was not compressed"
    assert two.tables("powersgd, small buckets")["epochs"].test_accuracy.iloc[-1] > 0.8


def test_gradients_are_clipped_by_the_norm_over_all_ranks(two: Two) -> None:
    assert distance(two.saved("clipped"), two.saved("ddp")) > 0.01, "nothing was clipped"
    assert distance(two.saved("clipped fsdp, fp16"), two.saved("clipped")) < 2e-3


def test_gradients_are_reduced_once_a_step(two: Two) -> None:
    for name in ("bf16 hook", "fsdp"):
        assert two.of(name, "reduced") == two.of(f"{name}, accumulated", "reduced")
        assert min(two.of(name, "reduced")) >= 15, "3 warm-up steps and 12"


def test_what_is_sharded_is_a_part_on_every_rank(two: Two) -> None:
    weights, state = two.of("own", "weights")[0], two.of("own", "state")[0]
    assert two.of("own", "state") == [state, state] and two.of("own zero1", "weights") == [weights, weights]
    assert sum(two.of("own zero1", "state")) == state and min(two.of("own zero1", "state")) > 0
    assert sum(two.of("own fsdp", "weights")) == weights and max(two.of("own fsdp", "weights")) < 0.6 * weights
    assert max(two.of("own fsdp", "state")) < 0.6 * state


def _rounding(name: str) -> float:
    """PowerSGD's: whichever thread finds its factors ready multiplies them."""
    return 1e-6 if name == "powersgd" else 0.0


@pytest.mark.parametrize("name", COLD)
def test_the_warm_up_leaves_no_trace(two: Two, name: str) -> None:
    assert distance(two.saved(f"cold {name}"), two.saved(f"straight {name}")) <= _rounding(name)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_ends_with_the_same_weights(two: Two, name: str) -> None:
    ours, theirs = f"resumed {name}", f"straight {name}"
    assert two.tables(ours)["run"]["restarts"] == 1
    assert distance(two.saved(ours), two.saved(theirs)) <= _rounding(name)
    for column in ("train_loss", "test_loss", "samples"):
        resumed, straight = (two.tables(which)["epochs"][column].tolist() for which in (ours, theirs))
        assert resumed == pytest.approx(straight, rel=_rounding(name), abs=0)


def test_several_optimizers_train_the_same_on_any_strategy(two: Two) -> None:
    assert distance(two.saved("straight several"), two.saved("straight ddp")) > 1e-3
    assert same(two.saved("straight several zero1"), two.saved("straight several"))
    assert distance(two.saved("straight several fsdp"), two.saved("straight several")) < 1e-4


def test_weights_are_whole_and_the_plain_models(two: Two) -> None:
    for name in ("own fsdp", "own zero1"):
        model = stacked.Stack()
        model.load_state_dict(two.saved(name))
        assert int(model.blocks[0].norm.num_batches_tracked) == 12


def test_every_strategys_records_are_whole(two: Two) -> None:
    loaded = records.load(two.results)
    assert loaded.refused == {} and set(loaded.unfinished.values()) <= {"failed"}
    assert {*loaded.runs.parallel} == {"ddp", "zero1", "fsdp"}
    phases = two.tables("accumulated")["steps"].dropna()
    assert phases[PHASES].sum(axis=1).tolist() == pytest.approx(phases.seconds.tolist())
    flops = {two.tables(name)["run"]["flops_per_sample"] for name in ("ddp", "zero1", "fsdp")}
    assert len(flops) == 1 and min(flops) > 0


@pytest.mark.parametrize("parallel", ["ddp", "zero1", "fsdp"])
def test_a_group_of_one_trains_the_same(results: Path, parallel: str) -> None:
    ours, alone = (fit(**BRIEF, parallel=how, save_weights=True)[0] for how in (parallel, "none"))
    assert distance(saved(ours.path), saved(alone.path)) < 1e-6
    assert [result.tables()["run"]["backend"] for result in (ours, alone)] == ["gloo", None]


# -- micro-batches and blocks ------------------------------------------------------------------------------


def test_a_batch_of_anything_is_cut_along_its_samples() -> None:
    inputs = {"x": torch.arange(8.0).view(4, 2), "name": list("abcd"), "scale": torch.tensor(2.0)}
    first, second = microbatches((inputs, (torch.arange(4), None)), 2)
    assert first[0]["x"].tolist() == [[0, 1], [2, 3]] and second[0]["x"].tolist() == [[4, 5], [6, 7]]
    assert (first[0]["name"], second[0]["name"]) == (["a", "b"], ["c", "d"])
    assert second[0]["scale"] == 2 and second[1][0].tolist() == [2, 3] and second[1][1] is None


@pytest.mark.parametrize(("rows", "targets", "parts"), [(3, 4, 2), (6, 6, 4)])
def test_a_batch_that_cannot_be_cut_is_refused(rows: int, targets: int, parts: int) -> None:
    with pytest.raises(WorkloadError):
        microbatches((torch.zeros(rows, 3), torch.zeros(targets)), parts)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: MODELS["resnet18"](3, 10, "cifar", 32), {"BasicBlock": 8}),
        (lambda: MODELS["cnn"](3, 10, "cifar", 32), {"Conv2d": 2, "Linear": 2}),
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 3), {"TransformerEncoderLayer": 3}),
        (lambda: nn.ModuleDict({"inner": stacked.Stack()}), {"Block": 2}),
    ],
)
def test_blocks_are_what_a_model_is_a_stack_of(make: Callable[[], nn.Module], found: dict[str, Any]) -> None:
    names = [type(block).__name__ for block in blocks(make())]
    assert {name: names.count(name) for name in names} == found


def test_blocks_that_share_weights_are_not_gathered_on_their_own() -> None:
    model = stacked.Stack()
    assert [*fsdp._apart(model)] == [*model.blocks]
    model.blocks[1].linear.weight = model.blocks[0].linear.weight
    assert [*fsdp._apart(model)] == []
