"""The network of `companions.mpi.model` in PyTorch, with the same weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from companions.mpi.model import CNN


def twin(model: CNN) -> nn.Sequential:
    """For images (n, c, h, w)."""
    shapes = [layer.weight_shape for layer in model.layers]
    (_, channels, first), (_, _, second), dense, last = shapes
    network = nn.Sequential(
        nn.Sequential(nn.Conv2d(channels, first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(*dense), nn.ReLU()),
        nn.Linear(*last),
    )
    network.to(torch.from_numpy(model.parameters).dtype)
    with torch.no_grad():
        for parameter, values in zip(network.parameters(), in_torchs_layout(model, model.parameters), strict=True):
            parameter.copy_(values)
    return network


def in_torchs_layout(model: CNN, flat) -> list[Tensor]:
    """Weights and biases (or their gradients) of a flat array, in the order and layout of `twin`'s parameters."""
    found = []
    for number, layer in enumerate(model.layers):
        weight, bias = map(torch.tensor, layer.views(flat))
        if number < 2:
            weight = weight.unflatten(0, (3, 3)).permute(3, 2, 0, 1)
        elif number == 2:  # its inputs are (h, w, c) here, and (c, h, w) there
            weight = weight.unflatten(0, model.layers[1].y_shape).permute(3, 2, 0, 1).flatten(1)
        else:
            weight = weight.T
        found += [weight, bias]
    return found
