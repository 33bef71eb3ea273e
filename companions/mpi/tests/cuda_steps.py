"""The same training on a GPU, or in Numba's simulator of one, and on the CPU: `python -m companions.mpi.tests.cuda_steps`."""

from __future__ import annotations

import sys

import numpy as np

from companions.mpi import cuda, model


def compare(shape: tuple[int, int, int], widths: tuple[int, int, int], batch: int, steps: int) -> None:
    """Train both, with several threads configured; outputs, gradients as they are announced, weights and momentum are equal."""
    networks = [kind((*shape,), 3, batch=batch, seed=1, widths=widths, threads=2) for kind in (model.CNN, cuda.CNN)]
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True}
    optimizers = [kind(**options) for kind in (model.SGD, cuda.SGD)]
    rng = np.random.default_rng(0)
    for step in range(steps):
        count = batch - step % 2
        x, y = rng.standard_normal((count, *shape)).astype(np.float32), rng.integers(0, 3, count)
        found = []
        for network, optimizer in zip(networks, optimizers, strict=True):
            logits, announced = network.forward(x).copy(), [np.empty(0)]

            def ready(part: slice, network=network, announced=announced) -> None:
                announced.insert(0, network.gradients[part].copy())

            network.backward(network.loss(x, y, ranks=2), ready if step else None)
            optimizer.step(network)
            results = logits, network.outcome, np.concatenate(announced), network.parameters, optimizer.velocity
            found.append(results)
        for ours, expected in zip(*found, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def shared_array(self, shape: tuple[int, ...], dtype: object) -> np.ndarray:
    """One array for all threads of a block: the simulator's own function lets two threads that come at once allocate one each."""
    return self._allocations.setdefault(sys._getframe(1).f_lineno, np.empty(shape, np.float32))


if __name__ == "__main__":
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    FakeCUDAShared.array = shared_array
    sys.setswitchinterval(1e-5)  # the simulator's threads wait for each other
    cuda.LEFT, cuda.RIGHT, cuda.THREADS, cuda.BLOCK, cuda.DEPTH = (2, 9), (2, 5), 2, 32, 8  # several tiles and parts
    compare((4, 8, 2), (2, 5, 3), batch=3, steps=3)
