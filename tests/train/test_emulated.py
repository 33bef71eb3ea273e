"""The emulated device: the real model's parameters and DDP's own communication, and waits instead of computing."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records import probes
from hpc_utils.records.compute_profile import NotMeasured, Profile, interpolate
from hpc_utils.train import compilation, emulated, train
from hpc_utils.train.resolve import resolve

from .waits import BRIEF, READY, SECONDS, keep


@pytest.fixture
def config(results: Path) -> RunConfig:
    return RunConfig(**BRIEF, compute_profile=keep())


def test_the_model_is_the_real_one_but_for_what_it_computes(config: RunConfig) -> None:
    real = resolve(RunConfig(workload="cnn")).model()
    model = resolve(config).model()
    shapes = [[(name, p.shape) for name, p in one.named_parameters()] for one in (real, model)]
    assert shapes[0] == shapes[1]
    assert model.state_dict().keys() == real.state_dict().keys()


def test_a_processor_that_waits_needs_no_tensor_cores(config: RunConfig) -> None:
    """TF32 is what the device that it stands for computed in."""
    compilation.require(config.model_copy(update={"precision": "tf32"}), torch.device("cpu"))


def test_gradients_are_ready_when_they_were_measured_to_be(config: RunConfig) -> None:
    """In that order and not before that time; no phase is shorter than it was measured, twice dilated."""
    workload = resolve(config)
    model, seen = workload.model(), []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name, time.perf_counter())))
    optimizer = workload.optimizer(model, config, 0.1)
    marks = [time.perf_counter()]
    inputs, _ = workload.train.batch(torch.arange(16), 1, torch.device("cpu"))
    marks.append(time.perf_counter())
    loss = workload.loss(workload.forward(model, inputs), None)
    marks.append(time.perf_counter())
    loss.backward()
    marks.append(time.perf_counter())
    optimizer.step()
    marks.append(time.perf_counter())
    took = dict(zip(SECONDS, (end - begun for begun, end in pairwise(marks)), strict=True))
    assert all(seconds >= 2 * SECONDS[phase] for phase, seconds in took.items()), took
    assert [name for name, _ in seen] == [name for name, _ in READY]
    begun = marks[2]
    whole = 2 * SECONDS["backward"]
    fractions = dict(READY) | {"2.weight": 0.12, "8.bias": 0.3, "6.weight": 1.0, "6.bias": 1.0}  # a module at once
    assert all(second - begun >= fractions[name] * whole for name, second in seen)
    assert {name: (p.grad.shape, p.grad.sum().item()) for name, p in model.named_parameters()} == {
        name: (p.shape, 0.0) for name, p in model.named_parameters()
    }


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"evaluate_every": 1}, "evaluate_every=0"),
        ({"device": "cpu"}, "dilation"),
        ({"compute_profile": None}, "hpc bench compute"),
        ({"compute_profile": "none-such"}, "none-such"),
    ],
)
def test_what_an_emulated_device_cannot_do_is_refused(config: RunConfig, parameters: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        train(RunConfig(**BRIEF | {"compute_profile": config.compute_profile} | parameters))


def test_the_profile_of_another_model_is_refused(results: Path) -> None:
    config = RunConfig(**BRIEF, compute_profile=keep(READY[1:]))
    with pytest.raises(ConfigError, match="of another model"):
        resolve(config).model()


def test_batches_between_the_measured_are_interpolated(results: Path) -> None:
    profile = Profile("p", probes.newest("compute", name=keep()))
    assert profile.seconds(20)["forward"] == pytest.approx(1.25 * 0.03)
    assert profile.seconds(64)["forward"] == pytest.approx(4 * 0.03)
    assert interpolate([(4, 2.0)], 8) == 4.0
    for batch in (3, 65):
        with pytest.raises(NotMeasured, match=f"{batch} is too far from what was measured, 8 to 32"):
            profile.seconds(batch)


def test_stages_cover_the_backward_pass(results: Path) -> None:
    found = emulated.stages(Profile("p", probes.newest("compute", name=keep())))
    assert [stage.parameters for stage in found] == [
        ("2.weight", "2.bias"), ("8.bias", "8.weight"), ("0.bias", "0.weight"), ("6.weight", "6.bias"),
    ]  # fmt: skip
    assert [(stage.begins, stage.ends) for stage in found] == [(0, 0.12), (0.12, 0.3), (0.3, 0.5), (0.5, 1)]
