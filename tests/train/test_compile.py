"""torch.compile on this machine's processor: slow to compile, so few runs show much each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from hpc_utils import capability
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.train import compilation, train

from .support import BRIEF, distance, fit

RUN = BRIEF | {"warmup_steps": 2, "evaluate_every": 1, "epochs": 2, "eval_batch": 100, "global_batch": 32}


def test_a_compiled_model_trains_alike_and_nothing_is_compiled_in_the_time_measured(results: Path) -> None:
    """The model is an nn.Sequential, which torch's in-place compile passes over; its names are the plain model's."""
    from torch._dynamo.utils import counters

    plain, weights = fit(**RUN)
    before = counters["frames"]["total"]
    result, compiled = fit(**RUN, compile="default", save_weights=True)
    assert counters["frames"]["total"] == before + 1, "one graph: evaluation, of other shapes, is not compiled"
    assert 0 < distance(weights, compiled) < 1e-5
    ours, theirs = result.tables(), plain.tables()
    assert ours["epochs"].test_loss.tolist() == pytest.approx(theirs["epochs"].test_loss.tolist(), rel=1e-4)
    assert ours["run"]["flops_per_sample"] == theirs["run"]["flops_per_sample"] > 0
    assert list(torch.load(result.path / "weights.pt")) == list(weights)
    assert json.loads((result.path / "run.json").read_text())["remarks"] == []


def test_compilation_in_the_measured_time_is_remarked() -> None:
    model = torch.nn.Tanh()
    compiled = compilation.Compiled(model, RunConfig(compile="default"))
    model(torch.ones(3))
    compiled.warmed_up()
    with compilation.eager():
        model(torch.ones(5))
    assert compiled.remark() == ""
    model(torch.ones(4))
    assert "compiled 1 times in the measured time" in compiled.remark()


@pytest.mark.parametrize(("parameters", "why"), [
    ({"compile": "reduce-overhead", "warmup_steps": 3}, "uses CUDA graphs"),
    ({"precision": "tf32"}, "would compute in fp32"),
])  # fmt: skip
def test_what_a_cpu_cannot_do_is_refused_before_anything_is_recorded(
    results: Path, parameters: dict, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        train(RunConfig(**BRIEF | parameters, device="cpu"))
    assert not (results / "runs").exists()


def test_a_step_graph_needs_a_gpu() -> None:
    config = RunConfig(step_graph=True, fused_optimizer=True)
    with pytest.raises(ConfigError, match=r"step_graph=true .* needs a GPU"):
        compilation.require(config, torch.device("cpu"))


def test_a_machine_without_a_compiler_is_reported(
    results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert capability.of_compiler("default") == "" == capability.of_compiler("off")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler, but g\+\+ is not on PATH"):
        train(RunConfig(**BRIEF | {"warmup_steps": 1}, compile="default"))
