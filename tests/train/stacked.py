"""A third-party workload: blocks large enough to be sharded, batch statistics, dropout, an optimizer of its own."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hpc_utils.train import Workload
from hpc_utils.train.workload import correct

WIDTH, BLOCKS = 600, 2  # 1.4 MB of weights in a block


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.norm(self.linear(x)).relu())


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Points(Dataset):
    def __init__(self, size: int) -> None:
        self.x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[dict, int]:
        return {"x": self.x[index], "name": f"point {index}"}, int(self.x[index].sum() > 0)


def groups(model: nn.Module, config, lr: float) -> torch.optim.Optimizer:
    """AdamW, which decays matrices only."""
    wide = [p for p in model.parameters() if p.ndim > 1]
    narrow = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.AdamW([{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}], lr=lr)


def make() -> Workload:
    """Eight steps of 16 samples; with 21 to evaluate, in batches of 10, the second rank has a batch less."""
    return Workload(
        model=Stack,
        train=Points(128),
        test=Points(21),
        loss=nn.CrossEntropyLoss(),
        metrics={"accuracy": correct},
        forward=lambda model, inputs: model(inputs["x"]),
        optimizer=groups,
    )


def several() -> Workload:
    """With an optimizer for matrices, and another for all else."""
    return dataclasses.replace(make(), optimizer=two)


def two(model: nn.Module, config, lr: float) -> list[torch.optim.Optimizer]:
    wide = [p for p in model.parameters() if p.ndim > 1]
    narrow = [p for p in model.parameters() if p.ndim <= 1]
    return [torch.optim.SGD(wide, lr, momentum=0.9), torch.optim.AdamW(narrow, lr / 10)]
