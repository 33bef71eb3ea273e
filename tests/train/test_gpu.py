"""Training on a GPU."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hpc_utils.config import RunConfig
from hpc_utils.train import train
from hpc_utils.train.loader import Loader
from hpc_utils.train.resolve import resolve

from .forked import Ranks, Two
from .support import BRIEF, PHASES, after_steps, distance, fit, remarks, resumed, same, saved, stop
from .test_loaders import batches

pytestmark = pytest.mark.gpu

RUN = BRIEF | {"device": "cuda", "epochs": 2, "steps_per_epoch": 20, "phase_every": 5, "warmup_steps": 5}
CAPTURED = {"loader": "device", "fused_optimizer": True, "step_graph": True}


@pytest.mark.parametrize("parallel", ["none", "ddp"])
def test_times_and_memory_of_the_device_are_recorded(results, parallel: str) -> None:
    result, weights = fit(**RUN, parallel=parallel)
    tables = result.tables()
    steps, epochs, (rank,) = tables["steps"], tables["epochs"], tables["ranks"].to_dict("records")
    assert steps.groupby("epoch").seconds.sum().tolist() == pytest.approx(epochs.seconds.tolist(), rel=0.1, abs=0.01)
    sampled = steps[steps.forward.notna()]
    assert sampled.step.tolist() == [1, 6, 11, 16] * 2
    assert sampled[PHASES].sum(axis=1).tolist() == pytest.approx(sampled.seconds.tolist(), rel=0.02, abs=1e-4)
    assert tables["run"]["backend"] in (("nccl", "rccl") if parallel == "ddp" else (None,))
    held = sum(value.numel() * value.element_size() for value in weights.values())
    total = torch.cuda.get_device_properties(0).total_memory
    assert 2 * held < rank["peak_allocated_bytes"] <= rank["peak_reserved_bytes"] < total
    assert rank["device"] == "cuda:0" and rank["device_name"] == torch.cuda.get_device_name(0)


def test_warm_up_leaves_no_trace_and_a_gpu_trains_what_a_cpu_trains(results) -> None:
    run = RUN | {"deterministic": True, "epochs": 1, "steps_per_epoch": 5}
    warm, cold, host = (fit(**run | more)[1] for more in ({}, {"warmup_steps": 0}, {"device": "cpu"}))
    assert distance(cold, warm) < 1e-6
    assert distance({name: value.cpu() for name, value in warm.items()}, host) < 1e-3


@pytest.mark.parametrize("way", ["host", "device", "workers"])
def test_images_are_a_cpu_s_bit_by_bit(way: str) -> None:
    pairs = zip(batches(device="cuda:0", loader=way, cutout=3), batches(loader="host", cutout=3), strict=True)
    for (x, y), (u, v) in pairs:
        assert x.device.type == y.device.type == "cuda" and x.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(x.cpu(), u) and torch.equal(y.cpu(), v)


@pytest.mark.parametrize("way", ["host", "device"])
def test_a_step_s_batch_does_not_wait_for_the_device(way: str) -> None:
    config = RunConfig(workload="cnn", loader=way)
    workload = resolve(config)
    made = Loader(workload.train, workload, config, torch.device("cuda:0")).batches(torch.arange(256).split(64), 1)
    next(made)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(made)) == 3
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_model_trains_alike_and_replays(results, mode: str) -> None:
    run = RUN | {"workload": "resnet18", "steps_per_epoch": 5, "evaluate_every": 1, "warmup_steps": 3}
    plain, compiled = (fit(**run, compile=how)[0] for how in ("off", mode))
    ours, theirs = (one.tables()["epochs"].iloc[0] for one in (compiled, plain))  # later, rounding has grown
    for column, rel in (("train_loss", 0.02), ("test_loss", 0.05)):
        assert ours[column] == pytest.approx(theirs[column], rel=rel)
    assert remarks(compiled.path) == []


def test_activation_checkpointing_takes_less_memory_and_learns_the_same(results) -> None:
    run = RUN | {
        "workload": "resnet18",
        "epochs": 1,
        "steps_per_epoch": 3,
        "global_batch": 512,
        "image_size": 32,  # at the digits' own size, convolutions' workspaces are larger than activations
        "deterministic": True,
    }
    (plain, weights), (other, others) = fit(**run), fit(**run, activation_checkpointing=True)
    assert same(weights, others)
    peak, less = (one.tables()["ranks"].peak_allocated_bytes[0] for one in (plain, other))
    assert less < 0.8 * peak


@pytest.mark.parametrize("options", [{}, CAPTURED], ids=["eager", "captured"])
def test_a_trace_holds_the_window_s_kernels(results, options: dict) -> None:
    result, _ = fit(**RUN | options, profile="torch", profile_steps=3)
    with gzip.open(result.path / "profile/rank0.trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"] == "step"]
    kernels = [e["ts"] for e in events if e.get("cat") == "kernel"]
    assert len(steps) == 3 and len(kernels) > 30
    assert steps[0]["ts"] <= min(kernels) and max(kernels) - steps[-1]["ts"] - steps[-1]["dur"] < 1e6
    rows = (result.path / "monitor").glob("*.csv")
    assert "cuda:0" in next(rows).read_text()


SPREAD = [
    {"precision": "tf32"}, {"precision": "bf16"}, {"precision": "fp16"},
    {"comm_hook": "fp16"}, {"comm_hook": "bf16"}, {"comm_hook": "powersgd"}, {"static_graph": True},
    {"accumulate": 4}, {"parallel": "fsdp", "accumulate": 4, "precision": "bf16"},
    {"parallel": "fsdp", "precision": "fp16"}, {"parallel": "zero1", "precision": "fp16", "fused_optimizer": True},
]  # fmt: skip


@pytest.mark.parametrize("options", SPREAD, ids=lambda options: " ".join(map(str, options.values())))
def test_strategies_train_alike_over_nccl(results, options: dict) -> None:
    """One rank tries all that NCCL is asked for; compression changes gradients on one rank too."""
    plain, other = (fit(**RUN | more)[0].tables()["epochs"].iloc[-1] for more in ({}, options))
    assert other.train_loss == pytest.approx(plain.train_loss, rel=0.3 if "powersgd" in options.values() else 0.05)


STRATEGIES = [
    ({"parallel": parallel, "optimizer": "adamw", "fused_optimizer": fused}, 1e-6)
    for parallel in ("ddp", "zero1", "fsdp")
    for fused in (False, True)
]
REPLAYS = [
    (CAPTURED | {"parallel": parallel, "optimizer": optimizer}, 0.0)
    for parallel in ("none", "ddp")
    for optimizer in ("sgd", "adamw")
]


@pytest.mark.parametrize(("options", "most"), [*STRATEGIES, *REPLAYS])
def test_a_resumed_run_ends_as_a_straight_one(results, options: dict, most: float) -> None:
    """To rounding; a run of replays, bit by bit."""
    run = RUN | options | {"lr": 0.01, "deterministic": True, "save_weights": True}
    straight, _ = fit(**run)
    assert distance(saved(resumed(run, 30).path), saved(straight.path)) <= most


TWO = RUN | CAPTURED | {"lr": 0.01, "deterministic": True, "save_weights": True, "collective_timeout": 20.0}
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def each_of_two() -> dict:
    reports = {
        name: {"run": train(RunConfig(**TWO | options)).run_id}
        for name, options in {"eager": {"step_graph": False}, "captured": {}}.items()
    }
    stop(TWO | {"repeat": 2}, 10)
    dist.destroy_process_group()  # all have left it in order
    return reports | {"resumed": {"run": train(RunConfig(**TWO, repeat=2)).run_id}}


@two_gpus
def test_two_gpus_replay_and_resume_what_they_train(tmp_path: Path) -> None:
    two = Two(each_of_two, tmp_path)
    assert distance(two.saved("captured"), two.saved("eager")) < 1e-4
    assert same(two.saved("resumed"), two.saved("captured"))
    assert two.tables("captured")["ranks"].device.tolist() == ["cuda:0", "cuda:1"]


def loses_the_second() -> None:
    with after_steps({10: lambda trainer: trainer.ranks.rank and os._exit(3)}):
        train(RunConfig(**TWO))


@two_gpus
def test_a_gpu_that_replays_alone_ends(tmp_path: Path) -> None:
    ranks = Ranks(2, loses_the_second, folder=tmp_path, results=tmp_path / "results")
    ranks.processes[0].join(120)  # by itself: `end` would send it SIGTERM
    codes = [process.exitcode for process in ranks.processes]
    ranks.end()
    assert codes == [1, 3], ranks.output()
