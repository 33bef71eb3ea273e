"""Operations that training takes a sample: counted, not computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from hpc_utils.config import RunConfig
from hpc_utils.records.folder import read_json
from hpc_utils.train import operations, train, vision

from .support import BRIEF

VALUES = """
    import torch
    from torch import nn
    from hpc_utils.train import Workload

    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x if x.abs().max().item() < 100 else x / 100)

    def make():
        data = [(torch.ones(4), 1)] * 64
        return Workload(model=Looks, train=data, test=data, loss=nn.functional.cross_entropy)
"""


def test_counting_changes_neither_weights_nor_statistics_nor_gradients() -> None:
    config = RunConfig(workload="resnet18")
    made = vision.workload(config)
    model = made.model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batch = made.train.batch(torch.arange(4), 1, torch.device("cpu"))
    assert operations.per_sample(made, model, batch) > 1e8
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_run_records_two_operations_a_weight_in_each_product(results: Path) -> None:
    """Forward, the weights' gradient, and the inputs' (not of the first layer, which needs none)."""
    run = train(RunConfig(**BRIEF | {"warmup_steps": 1})).tables()["run"]
    first, second, third = 9 * 32 * 64, 9 * 32 * 64 * 64, 64 * 16 * 128 + 128 * 10
    assert run["flops_per_sample"] == 2 * (2 * first + 3 * (second + third))


def test_a_model_that_looks_at_values_trains_all_the_same(results: Path, module: Callable) -> None:
    module("looks", VALUES)
    brief = BRIEF | {"workload": "looks:make", "global_batch": 16, "warmup_steps": 1}
    result = train(RunConfig(**brief))
    assert result.tables()["run"]["flops_per_sample"] is None
    (remark,) = read_json(result.path / "run.json")["remarks"]
    assert remark.startswith("the model's operations were not counted, so there is no MFU: ")
