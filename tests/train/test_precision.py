from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hpc_utils.provenance import cpu
from hpc_utils.train import precision

from .conftest import OUTSIDE
from .support import BRIEF, fit


def flags() -> tuple[bool, ...]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture(params=[False, True])
def before(request: pytest.FixtureRequest) -> Iterator[bool]:
    """TF32 as other code left it."""
    matmul, convolution = flags()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = request.param
    yield request.param
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, convolution


@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16", "fp16"])
def test_tf32_is_on_for_tf32_only_and_restored(before: bool, name: str) -> None:
    with pytest.raises(RuntimeError, match="inside"), precision.matmul_precision(name):
        assert flags() == (name == "tf32",) * 2
        assert torch.backends.cudnn.benchmark and not torch.are_deterministic_algorithms_enabled()
        raise RuntimeError("inside")
    assert flags() == (before, before)
    with precision.matmul_precision(name, deterministic=True):
        assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_loop_s_default_is_read_by_either_name_of_tf32(before: bool) -> None:
    gpu = torch.device("cuda", 0)
    assert precision.default_precision(gpu) == ("tf32" if before else "fp32")
    if not hasattr(torch.backends, "fp32_precision"):
        pytest.skip("torch has the old names only")
    matmul = torch.backends.cuda.matmul
    former = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        assert precision.default_precision(gpu) == "tf32"
        assert precision.default_precision(torch.device("cpu")) == "fp32"
    finally:
        matmul.fp32_precision = former


@pytest.mark.parametrize("name", ["fp32", pytest.param("tf32", marks=pytest.mark.gpu)])
def test_a_run_trains_under_its_own_flags(module: Callable, name: str) -> None:
    module(
        "flags",
        OUTSIDE.replace("return self.layers(x)", "seen.add((torch.backends.cuda.matmul.allow_tf32, "
                        "torch.backends.cudnn.allow_tf32)); return self.layers(x)") + "\n    seen = set()\n",
    )  # fmt: skip
    fit(**BRIEF | {"workload": "flags:make", "global_batch": 16, "evaluate_every": 1}, precision=name)
    import flags as workload

    assert workload.seen == {(name == "tf32",) * 2}


def test_amp_is_recorded_as_the_format_that_ran(results: Path) -> None:
    ran = "fp16" if cpu.emulates_bf16() else "bf16"
    result, _ = fit(**BRIEF, precision="amp")
    tables = result.tables()
    assert tables["run"]["precision"] == ran and "-amp-" in result.run_id


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_mixed_precision_trains_alike(results, name: str) -> None:
    parameters = BRIEF | {"evaluate_every": 1, "steps_per_epoch": 5}
    full, mixed = (fit(**parameters, precision=p)[0].tables()["epochs"].iloc[0] for p in ("fp32", name))
    for column in ("train_loss", "test_loss"):
        assert mixed[column] == pytest.approx(full[column], rel=0.01)
        assert mixed[column] != full[column], "that was not mixed precision"


def test_fp16_scales_the_loss_and_the_optimizer_unscales(results, monkeypatch) -> None:
    """A gradient too small for fp16 without scaling must arrive; a skipped step must not."""
    scales = []
    original = torch.amp.GradScaler.scale

    def scale(self, loss):
        scaled = original(self, loss)
        scales.append(float(scaled.detach() / loss.detach()))
        return scaled

    monkeypatch.setattr(torch.amp.GradScaler, "scale", scale)
    for name, factor in (("fp16", 65536.0), ("fp32", 1.0)):
        scales.clear()
        fit(**BRIEF, precision=name)
        assert scales == [factor] * 3
