"""The training step as one CUDA graph: what is refused, what a replay gives, and how a hanging one ends."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records.folder import read_json
from hpc_utils.train import Workload, step_graph, train
from hpc_utils.train.loader import Loader
from hpc_utils.train.ranks import Ranks
from hpc_utils.train.resolve import resolve
from hpc_utils.train.workload import WorkloadError

from .support import BRIEF, after_steps, distance, fit, remarks

gpu = pytest.mark.gpu

RUN = BRIEF | {
    "device": "cuda", "loader": "device", "epochs": 2, "steps_per_epoch": 20, "fused_optimizer": True, "step_graph": True,
}  # fmt: skip
HANG = 10**13  # cycles of a GPU: an hour


def linear(loss: str = "plain", optimizer: str = "SGD", length: int = 256) -> Workload:
    """A workload whose step is static, or fails to be in one way."""
    data = TensorDataset(torch.randn(length, 8), torch.randint(2, (length,)))

    def of(outputs: Tensor, targets: Tensor) -> Tensor:
        value = nn.functional.cross_entropy(outputs, targets)
        if loss == "reads" and value.item() < 0:
            return value
        if loss == "hangs" and torch.cuda.is_current_stream_capturing():
            torch.cuda._sleep(HANG)
        return value * (random.random() if loss == "draws" else 1)

    build = getattr(torch.optim, optimizer)
    options = {"fused": True} if optimizer == "SGD" else {}
    return Workload(
        lambda: nn.Linear(8, 2),
        data,
        data,
        of,
        optimizer=lambda model, _, lr: build(model.parameters(), lr, **options),
    )


def of_linear(**arguments: str) -> dict:
    return BRIEF | {
        "workload": "tests.train.test_step_graph:linear", "workload_args": arguments, "device": "cuda", "parallel": "ddp",
        "step_graph": True,
    }  # fmt: skip


def test_a_cpu_has_no_step_graph(results) -> None:
    with pytest.raises(ConfigError, match="step_graph"):
        train(RunConfig(**RUN | {"device": "auto" if not torch.cuda.is_available() else "cpu"}))


def test_parts_are_finished_to_the_batches() -> None:
    config = RunConfig(workload="cnn", loader="device", cutout=3)
    workload = resolve(config)
    loader = Loader(workload.train, workload, config, torch.device("cpu"))
    indices = torch.arange(256).split(64)
    for part, (images, labels) in zip(loader.parts(indices, 3), loader.batches(indices, 3), strict=True):
        chosen, drawn = part
        assert chosen.shape == (64,) and drawn.shape == (5, 64)
        finished, targets = loader.finish(*part)
        assert torch.equal(finished, images) and torch.equal(targets, labels)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_an_optimizer_of_zero_state_steps_like_a_fresh_one(kind: type) -> None:
    weights = [nn.Parameter(torch.ones(5)) for _ in range(2)]
    used, fresh = (
        kind([weight], lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {})) for weight in weights
    )
    weights[0].grad = torch.randn(5)
    used.step()
    weights[0].data.fill_(1)
    step_graph.zero_state([used])
    for _ in range(3):
        gradient = torch.randn(5)
        for weight, optimizer in zip(weights, (used, fresh), strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [("Adagrad", {}, "supported are SGD"), ("SGD", {}, "fused"), ("AdamW", {}, "fused"),
     ("SGD", {"fused": True, "momentum": 0.9, "dampening": 0.5}, "dampening")],
)  # fmt: skip
def test_optimizers_that_cannot_be_captured_are_refused(kind: str, options: dict, problem: str) -> None:
    optimizer = getattr(torch.optim, kind)([nn.Parameter(torch.ones(1))], lr=0.1, **options)
    with pytest.raises(WorkloadError, match=problem):
        step_graph.require_capturable(optimizer)


@pytest.mark.parametrize("kind", step_graph.ZERO_STATE)
def test_fused_optimizers_are_captured(kind: type) -> None:
    step_graph.require_capturable(kind([nn.Parameter(torch.ones(1))], lr=0.1, fused=True))


def test_a_batch_on_the_host_is_refused() -> None:
    with pytest.raises(WorkloadError, match="a tensor on cpu"):
        step_graph.StepGraph(lambda batch: batch, {"lengths": torch.ones(3)}, timeout=1)


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """What a capture fills, where there is no GPU; a step that fails ends the capture with an error of its own."""

    @contextlib.contextmanager
    def capture(*_: object, **options: object) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError("the capture was invalidated") from error

    made = mock.Mock()
    for name, value in {"CUDAGraph": lambda: made, "graph": capture, "current_stream": mock.Mock()}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return made


def test_a_graph_that_repeats_the_host_s_random_numbers_is_freed(graph: mock.Mock) -> None:
    """NCCL's communicator would wait for it."""
    with pytest.raises(WorkloadError, match="random numbers on the host"):
        step_graph.StepGraph(lambda _: random.random(), (), timeout=1)
    graph.reset.assert_called_once()


@pytest.mark.parametrize(
    ("problem", "raised"),
    [(torch.OutOfMemoryError("CUDA out of memory"), torch.OutOfMemoryError), (RuntimeError("read"), WorkloadError)],
)
def test_a_step_that_fails_under_capture_says_why(graph: mock.Mock, problem: RuntimeError, raised: type) -> None:
    with pytest.raises(raised, match=str(problem)):
        step_graph.StepGraph(mock.Mock(side_effect=problem), (), timeout=1)


@gpu
@pytest.mark.parametrize("parallel", ["none", "ddp"])
@pytest.mark.parametrize(
    "options",
    [{}, {"workload": "resnet18"}, {"precision": "fp16"}, {"accumulate": 4}, {"optimizer": "adamw", "lr": 0.01},
     {"loader": "host"}, {"loader": "workers", "loader_workers": 1}, {"cutout": 3}, {"clip_norm": 0.1}, {"clip_norm": 0.1, "precision": "fp16"}],
    ids=lambda options: " ".join(map(str, options.values())) or "fp32",
)  # fmt: skip
def test_a_replayed_step_trains_as_an_eager_one(results, parallel: str, options: dict) -> None:
    run = RUN | {"parallel": parallel, "deterministic": True, "evaluate_every": 2} | options
    (graph, weights), (eager, others) = fit(**run), fit(**run | {"step_graph": False})
    ours, theirs = (result.tables()["epochs"] for result in (graph, eager))
    loose = options.get("precision") or options.get("workload")
    assert ours.train_loss.tolist() == pytest.approx(theirs.train_loss.tolist(), rel=0.02 if loose else 1e-4)
    assert ours.lr.tolist() == pytest.approx(theirs.lr.tolist())
    if not loose:
        assert distance(weights, others) < 1e-4
    facts = read_json(graph.path / "run.json")["step_graph"]
    assert facts["capture_seconds"] > 0 and facts["eager_phases"]["backward"] > 0
    assert remarks(graph.path) == []


@gpu
@pytest.mark.parametrize(
    "options",
    [{"gradient_as_bucket_view": False}, {"static_graph": True}, {"comm_hook": "fp16"}, {"bucket_mb": 0.05, "accumulate": 2}],
    ids=lambda options: " ".join(options),
)  # fmt: skip
def test_ddp_s_options_are_captured(results, options: dict) -> None:
    run = RUN | {"parallel": "ddp", "deterministic": True} | options
    graph, eager = (fit(**run | {"step_graph": on})[0].tables()["epochs"] for on in (True, False))
    assert graph.train_loss.tolist() == pytest.approx(eager.train_loss.tolist(), rel=1e-4)


@gpu
@pytest.mark.parametrize("parallel", ["none", "ddp"])
def test_a_compiled_step_is_replayed(results, parallel: str) -> None:
    run = RUN | {"workload": "resnet18", "parallel": parallel, "steps_per_epoch": 5, "warmup_steps": 3}
    graph, eager = (fit(**run | more)[0] for more in ({"compile": "default"}, {"step_graph": False}))
    ours, theirs = (result.tables()["epochs"].train_loss[0] for result in (graph, eager))
    assert ours == pytest.approx(theirs, rel=0.02)
    assert remarks(graph.path) == []


@gpu
def test_replays_do_not_wait_for_the_device(results) -> None:
    modes = {1: "error", 19: "default"}

    def check(number: int):
        return lambda _: torch.cuda.set_sync_debug_mode(modes[number])

    with after_steps({number: check(number) for number in modes}):
        fit(**RUN | {"epochs": 1})


@gpu
def test_a_user_s_static_step_is_replayed(results) -> None:
    own = of_linear() | {"steps_per_epoch": 20}
    graph, eager = (fit(**own | {"step_graph": on})[0].tables()["epochs"].train_loss[0] for on in (True, False))
    assert graph == pytest.approx(eager, rel=0.2)  # the data of both are drawn anew


@gpu
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [({"loss": "draws"}, "random numbers on the host"), ({"optimizer": "Adagrad"}, "Adagrad"), ({"loss": "reads"}, "cannot be captured")],
)  # fmt: skip
def test_a_step_that_is_not_static_is_refused(arguments: dict, problem: str, tmp_path: Path) -> None:
    lines = f"train(RunConfig(**{of_linear(**arguments)!r}))"
    done = _python(lines, tmp_path)  # of its own: a failed capture leaves errors behind
    assert done.returncode == 1 and "WorkloadError" in done.stderr and problem in done.stderr


@gpu
def test_batches_of_other_shapes_are_refused() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        graph = step_graph.StepGraph(lambda batch: batch[0] * 2, (torch.ones(4, device="cuda"),), timeout=60)
    torch.cuda.synchronize()
    assert Ranks(device=torch.device("cuda", 0)).has_graphs
    assert graph((torch.full((4,), 3.0, device="cuda"),)).tolist() == [6.0] * 4
    with pytest.raises(WorkloadError, match="differ in the values"):
        graph((torch.ones(3, device="cuda"),))
    graph.close()


@gpu
def test_a_replay_that_hangs_ends_the_process(tmp_path: Path) -> None:
    done = _python(f"train(RunConfig(**{of_linear(loss='hangs') | {'collective_timeout': 3.0}!r}))", tmp_path)
    assert done.returncode == 1 and "collective_timeout" in done.stderr


def _python(lines: str, results: Path) -> subprocess.CompletedProcess:
    code = f"from hpc_utils.config import RunConfig\nfrom hpc_utils.train import train\n{lines}"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HPC_RESULTS": str(results)},
        capture_output=True,
        text=True,
        timeout=120,
    )
