"""Activation checkpointing changes memory and operations, not the training."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
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


def bytes_kept(model: nn.Module, inputs: torch.Tensor) -> int:
    """What autograd holds between the passes, each storage once: saved tensors, and inputs to compute from again."""
    seen: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def enter(module: nn.Module, given: tuple) -> None:
        pack(given[0])

    for block in blocks.recomputed(model):
        block.register_forward_pre_hook(enter)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(inputs).sum()
    loss.backward()
    return sum(seen.values()) - sum(p.nbytes for p in model.parameters() if p.data_ptr() in seen)


def test_less_is_kept_and_more_is_computed() -> None:
    made = {}
    for checkpointed in (False, True):
        model = MODELS["resnet18"](3, 10, "cifar")
        if checkpointed:
            blocks.checkpoint_activations(model)
        with FlopCounterMode(display=False) as counter:
            kept = bytes_kept(model, torch.randn(4, 3, 16, 16))
        made[checkpointed] = kept, counter.get_total_flops()
    assert made[True][0] < 0.5 * made[False][0]
    assert 1.2 * made[False][1] < made[True][1] < 1.4 * made[False][1], "a third more: the blocks' forward pass again"


def test_a_copy_of_the_model_computes_with_its_own_weights() -> None:
    model = MODELS["resnet18"](3, 10, "cifar").eval()
    blocks.checkpoint_activations(model)
    other, images = copy.deepcopy(model), torch.randn(2, 3, 8, 8)
    before = other(images)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(other(images), before) and before.abs().sum() > 0


def test_a_model_without_blocks_is_refused(module: Callable) -> None:
    module("outside", OUTSIDE)
    with pytest.raises(WorkloadError, match="no blocks"):
        train(RunConfig(**BRIEF | {"workload": "outside:make", "global_batch": 32}, activation_checkpointing=True))
