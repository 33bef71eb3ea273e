"""Activation checkpointing changes memory and operations, not the training."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hpc_utils.config import RunConfig
from hpc_utils.train import WorkloadError, blocks, train
from hpc_utils.train.vision import MODELS

from .conftest import OUTSIDE
from .support import BRIEF, fit, same

# Blocks with batch norm (one of them cumulative, without momentum) and dropout, in a ModuleList.
DEEP = OUTSIDE.replace("self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 2))", """
            self.blocks = nn.ModuleList(Block(4, momentum) for momentum in (0.1, None, 0.3))
            self.head = nn.Linear(4, 2)""").replace("return self.layers(x) * scale", """
            for block in self.blocks:
                x = block(x)
            return self.head(x) * scale""") + """
    class Block(nn.Module):
        def __init__(self, width, momentum):
            super().__init__()
            self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width, momentum=momentum)

        def forward(self, x):
            return x + nn.functional.dropout(self.norm(self.linear(x)).relu(), 0.3, self.training)
"""  # fmt: skip


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_and_statistics_are_the_same_bit_by_bit(module: Callable, precision: str) -> None:
    """Dropout draws the same numbers again, and batch norm's statistics move once a step."""
    module("deep", DEEP)
    run = BRIEF | {"workload": "deep:make", "global_batch": 32, "evaluate_every": 1, "precision": precision}
    (plain, weights), (other, others) = fit(**run), fit(**run, activation_checkpointing=True)
    assert same(weights, others)
    assert others["blocks.1.norm.num_batches_tracked"] == 3
    columns = ["train_loss", "test_loss", "test_right"]
    assert plain.tables()["epochs"][columns].equals(other.tables()["epochs"][columns])


def test_the_blocks_forward_pass_is_computed_again() -> None:
    made = {}
    for checkpointed in (False, True):
        model = MODELS["resnet18"](3, 10, "cifar")
        if checkpointed:
            blocks.checkpoint_activations(model)
        with FlopCounterMode(display=False) as counter:
            model(torch.randn(4, 3, 16, 16)).sum().backward()
        made[checkpointed] = counter.get_total_flops()
    assert 1.2 * made[False] < made[True] < 1.4 * made[False], "a third more: the blocks' forward pass again"


def test_a_model_without_blocks_is_refused(module: Callable) -> None:
    module("outside", OUTSIDE)
    with pytest.raises(WorkloadError, match="no blocks"):
        train(RunConfig(**BRIEF | {"workload": "outside:make", "global_batch": 32}, activation_checkpointing=True))
