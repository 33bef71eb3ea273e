from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from hpc_utils.config import RunConfig
from hpc_utils.train import WorkloadError, optim, precision
from hpc_utils.train.resolve import resolve
from hpc_utils.train.vision import MODELS

from .conftest import OUTSIDE
from .support import BRIEF, distance, fit

PER_EPOCH, EPOCHS = 10, 20
STEPS = PER_EPOCH * EPOCHS


def factors(schedule: str, warmup: float = 2.0, **options: float) -> list[float]:
    config = RunConfig(schedule=schedule, lr_warmup_epochs=warmup, epochs=EPOCHS, **options)
    return [optim.lr_factor(step, STEPS, PER_EPOCH, config) for step in range(STEPS)]


def falling(values: list[float]) -> bool:
    return all(a >= b for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("schedule", ["cosine", "multistep", "step", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 2.5])
def test_the_warm_up_rises_in_equal_parts_to_the_peak(schedule: str, warmup: float) -> None:
    made, steps = factors(schedule, warmup), round(warmup * PER_EPOCH)
    assert made[:steps] == pytest.approx([(n + 1) / steps for n in range(steps)])
    assert made[steps] == 1.0 == max(made) and falling(made[steps:])


@pytest.mark.parametrize(
    ("schedule", "warmup", "at"),
    [
        ("cosine", 0.0, {50: 0.8536, 100: 0.5, 199: 0.0001}),
        ("cosine", 2.0, {110: 0.5, 199: 0.0001}),
        ("multistep", 2.0, {99: 1.0, 100: 0.1, 149: 0.1, 150: 0.01, 199: 0.01}),
        ("constant", 0.0, {0: 1.0, 100: 1.0, 199: 1.0}),
        ("onecycle", 2.0, {0: 0.04, 30: 0.52, 60: 1.0, 199: 0.0001}),
    ],
)
def test_schedules_pass_through_their_known_points(schedule: str, warmup: float, at: dict[int, float]) -> None:
    made = factors(schedule, warmup)
    assert {step: made[step] for step in at} == pytest.approx(at, abs=2e-4)
    assert min(made) > 0
    assert schedule != "onecycle" or (falling(made[60::-1]) and falling(made[60:]))


def test_step_is_torchs_step_lr() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler, expected = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.5), []
    for _ in range(EPOCHS):
        expected += [optimizer.param_groups[0]["lr"]] * PER_EPOCH
        optimizer.step()
        scheduler.step()
    assert [0.3 * factor for factor in factors("step", 0.0, step_size=7, gamma=0.5)] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", ["cosine", "multistep", "step", "constant", "onecycle"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_runs_have_a_rate_too(schedule: str, steps: int) -> None:
    config = RunConfig(schedule=schedule, lr_warmup_epochs=3.0, epochs=3)
    assert all(
        0 < optim.lr_factor(step, steps, per_epoch, config) <= 1 for per_epoch in (1, steps) for step in range(steps)
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_weights_decay_but_biases_and_norms_do_not(optimizer: str) -> None:
    model = MODELS["resnet18"](3, 10, "cifar")
    made = optim.build(model, RunConfig(optimizer=optimizer, weight_decay=0.25, momentum=0.8), 0.5)
    decays = {id(p): group["weight_decay"] for group in made.param_groups for p in group["params"]}
    expected = {
        id(p): 0.0 if attribute == "bias" or isinstance(module, nn.BatchNorm2d) else 0.25
        for module in model.modules()
        for attribute, p in module.named_parameters(recurse=False)
    }
    assert decays == expected
    for group in made.param_groups:
        assert group["lr"] == 0.5
        assert group["betas"][0] == 0.8 if optimizer == "adamw" else group["momentum"] == 0.8 and group["nesterov"]


def test_weight_decay_on_all_and_plain_momentum_are_torchs_sgd() -> None:
    ours, theirs = (MODELS["cnn"](1, 10) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    config = RunConfig(weight_decay=1e-2, weight_decay_on="all", nesterov=False)
    made = optim.build(ours, config, 0.1), torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9, weight_decay=1e-2)
    for _ in range(3):
        for model, optimizer in zip((ours, theirs), made, strict=True):
            optimizer.zero_grad()
            model(torch.ones(2, 1, 8, 8)).square().sum().backward()
            optimizer.step()
    assert distance(ours.state_dict(), theirs.state_dict()) == 0.0


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    model[0].requires_grad_(False)
    made = optim.build(model, RunConfig(momentum=0.0), 0.1)
    assert [p is model[1].weight for group in made.param_groups for p in group["params"]] == [True]


@pytest.mark.parametrize(("optimizer", "precision"), [("sgd", "fp16"), ("adamw", "fp32")])
def test_a_fused_optimizer_learns_the_same_but_for_rounding(results: Path, optimizer: str, precision: str) -> None:
    run = BRIEF | {"optimizer": optimizer, "precision": precision, "lr": 0.01, "lr_scaling": "none"}
    plain, fused = (fit(**run, fused_optimizer=on)[1] for on in (False, True))
    assert distance(plain, fused) < 1e-5
    made = optim.build(MODELS["cnn"](1, 10), RunConfig(optimizer=optimizer, fused_optimizer=True), 0.1)
    assert made.param_groups[0]["fused"] is True


def test_a_fused_optimizer_skips_its_first_step_as_others_do(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's fused SGD would go on with a momentum of whatever was in memory."""
    scaler = functools.partial(torch.amp.GradScaler, "cpu", init_scale=2.0**24)  # fp16 overflows
    monkeypatch.setattr(precision, "grad_scaler", lambda *_: scaler())
    run = BRIEF | {
        "precision": "fp16",
        "steps_per_epoch": 20,
        "lr": 0.01,
        "lr_scaling": "none",
        "deterministic": True,
    }
    plain, fused = (fit(**run, fused_optimizer=on)[1] for on in (False, True))
    assert distance(plain, fused) < 1e-5


def test_an_optimizer_of_ones_own_is_not_fused_silently(module: Callable) -> None:
    own = "return Workload(optimizer=lambda m, c, lr: torch.optim.SGD(m.parameters(), lr),"
    module("own", OUTSIDE.replace("return Workload(", own))
    assert resolve(RunConfig(workload="own:make"))
    with pytest.raises(WorkloadError, match=r"fused_optimizer: .* own optimizer"):
        resolve(RunConfig(workload="own:make", fused_optimizer=True))
