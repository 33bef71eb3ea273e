"""Evaluation of both views of an image."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from hpc_utils.config import RunConfig
from hpc_utils.train import Workload
from hpc_utils.train.evaluation import Evaluation
from hpc_utils.train.parallel import Strategy
from hpc_utils.train.ranks import Ranks
from hpc_utils.train.workload import correct


class BrighterHalf(nn.Module):
    """Class 0 if the left half of an image (n, 1, 2, 4) is brighter than the right one by more than 0.1."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        left, right = (half.sum((1, 2, 3)) for half in images.split(2, dim=3))
        return torch.stack([left, right + 0.1], dim=1)


def test_mirrored_evaluation_takes_the_mean_output_of_both_views() -> None:
    images = torch.zeros(8, 1, 2, 4)
    images[..., :2] = torch.arange(1.0, 9.0).view(8, 1, 1, 1)
    data = TensorDataset(images, torch.zeros(8, dtype=torch.long))
    workload = Workload(BrighterHalf, data, data, nn.functional.cross_entropy, {"accuracy": correct})
    config = RunConfig(evaluate_mirrored=True, eval_batch=4)
    model, ranks = BrighterHalf(), Ranks()
    found = Evaluation(model, workload, config, ranks, Strategy(model, config, ranks)).run(lambda: None)
    assert found["test_accuracy"] == 1.0
    assert found["test_mirrored_accuracy"] == 0.0, "the mean cannot tell the halves apart, and 0.1 decides"
