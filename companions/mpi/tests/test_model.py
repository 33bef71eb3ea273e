"""Our forward and backward passes against PyTorch's, layer by layer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from companions.mpi.model import CNN, SGD, loss

from .torch_twin import in_torchs_layout, twin

SHAPE, COUNT = (8, 12, 3), 7  # more than one block of images, the last one shorter


def small(**options) -> tuple[CNN, np.ndarray, np.ndarray]:
    """A narrow network in double precision, images and labels."""
    rng = np.random.default_rng(0)
    model = CNN(SHAPE, 5, batch=COUNT + 1, dtype="float64", widths=(4, 6, 5), **options)
    return model, rng.standard_normal((COUNT, *SHAPE)), rng.integers(0, 5, COUNT)


@pytest.mark.parametrize("threads", [1, 2])
def test_outputs_and_gradients_are_torchs_layer_by_layer(threads: int) -> None:
    model, x, y = small(threads=threads)
    network = twin(model)
    logits = model.forward(x)
    outputs = torch.from_numpy(x).permute(0, 3, 1, 2)
    for layer, block in zip(model.layers, network, strict=True):
        outputs = block(outputs)
        expected = outputs.permute(0, 2, 3, 1) if outputs.ndim == 4 else outputs
        torch.testing.assert_close(torch.tensor(layer.y[:COUNT]), expected)
    mean, correct, dlogits = loss(logits, y)
    expected = F.cross_entropy(outputs, torch.from_numpy(y))
    assert mean == pytest.approx(expected.item(), rel=1e-12)
    assert correct == (outputs.argmax(1).numpy() == y).sum()
    expected.backward()
    ready: list[slice] = []
    model.backward(dlogits, ready.append)
    for parameter, gradient in zip(network.parameters(), in_torchs_layout(model, model.gradients), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-9, atol=1e-12)
    assert [part.stop for part in ready] == [len(model.gradients), *(part.start for part in ready[:-1])]
    assert ready[-1].start == 0


def test_a_training_in_single_precision_follows_torchs() -> None:
    """Momentum, weight decay and Nesterov's form too; the initial weights are of torch's default range."""
    model = CNN(SHAPE, 5, batch=16, seed=4, widths=(4, 6, 5))
    for layer in model.layers:
        bound = np.prod(layer.weight.shape[:-1]) ** -0.5
        assert 0.8 * bound < abs(layer.weight).max() < bound
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}
    network, ours = twin(model), SGD(**options)
    theirs = torch.optim.SGD(network.parameters(), **options)
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, y = rng.standard_normal((16, *SHAPE)).astype(np.float32), rng.integers(0, 5, 16)
        mean, _, dlogits = loss(model.forward(x), y)
        model.backward(dlogits)
        ours.step(model)
        theirs.zero_grad()
        expected = F.cross_entropy(network(torch.from_numpy(x).permute(0, 3, 1, 2)), torch.from_numpy(y))
        expected.backward()
        theirs.step()
        assert mean == pytest.approx(expected.item(), abs=1e-4)


def test_a_diverged_training_shows() -> None:
    model, x, y = small()
    model.parameters[model.layers[0].slice] = np.nan
    assert np.isnan(loss(model.forward(x), y)[0])
