"""The convolutional network of the comparison: forward and backward passes of our own, on the CPU.

conv 3 x 3, ReLU, max pool 2 x 2, twice; dense and ReLU; dense. On MNIST 1-32, 32-64, 3136-128, 128-10: 421,642 parameters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from . import kernels

IMAGES = 4  # of a block: its arrays stay in the L2 cache
Ready = Callable[[slice], None]


class Block(NamedTuple):
    """Some images, and arrays for their windows: copied inputs (planes, t, k), products (planes, t, m), z (4, t, m)."""

    images: slice
    inputs: np.ndarray
    products: np.ndarray
    z: np.ndarray


class Layer:
    """What a layer has: its part of the flat arrays, and buffers for `batch` images that all steps use."""

    def __init__(self, weight: tuple[int, ...], y: tuple[int, ...], x: tuple[int, ...]) -> None:
        """Shapes of the weight (inputs, outputs), and of an image's output and input."""
        self.weight_shape, self.y_shape, self.x_shape = weight, y, x
        self.size = math.prod(weight) + weight[-1]

    def allocate(self, network: Network, start: int) -> None:
        """Take `size` parameters from `start` on, first the weight, then the bias."""
        self.slice = slice(start, start + self.size)
        self.weight, self.bias = self.views(network._parameters)
        self.gradients = [self.views(of_thread) for of_thread in network.partial]
        self.y, self.dx = (network.empty((network.batch, *shape)) for shape in (self.y_shape, self.x_shape))

    def views(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """This layer's weight and bias in a flat array."""
        stop = self.slice.stop - self.weight_shape[-1]
        return flat[self.slice.start : stop].reshape(self.weight_shape), flat[stop : self.slice.stop]


class Conv(Layer):
    """Convolution by im2col, ReLU and pooling. Its input is the data: there is no gradient of it.

    The weight is (9, c, m), the filter's rows first. `where` keeps the position (0-3) of each window's maximum, 4 where ReLU is zero.
    """

    planes, depth = 4, 9
    copy = staticmethod(kernels.im2col)

    def allocate(self, network: Network, start: int) -> None:
        super().allocate(network, start)
        self.where = np.empty(self.y.shape, np.uint8)

    def forward(self, x: np.ndarray, part: slice, thread: int) -> np.ndarray:
        self.x = x
        factors = self.factors()
        for block in self._blocks(part):
            self.copy(x[block.images], block.inputs)
            self.multiply(block, factors)
            kernels.pool(block.z, self.bias, *self._by_window(block, self.y, self.where))
        return self.y

    def backward(self, dy: np.ndarray, part: slice, thread: int) -> None:
        dweight, dbias = self.gradients[thread]
        dbias[:] = 0
        factors = self.factors()
        transposed, dfactors = np.swapaxes(factors, -2, -1).copy(), np.zeros_like(factors)
        for block in self._blocks(part):
            self.copy(self.x[block.images], block.inputs)  # cheaper to repeat than to keep
            kernels.unpool(*self._by_window(block, dy, self.where), block.z, dbias)
            self.multiply_back(block, transposed, dfactors)
        dweight[:] = self.gradient(dfactors).reshape(dweight.shape)

    def factors(self) -> np.ndarray:
        """The weight as it is multiplied: (9 * c, m)."""
        return self.weight.reshape(-1, self.weight_shape[-1])

    def multiply(self, block: Block, factors: np.ndarray) -> None:
        """Write z."""
        np.matmul(block.inputs, factors, out=block.z)

    def multiply_back(self, block: Block, transposed: np.ndarray, dfactors: np.ndarray) -> None:
        """From the gradient in z, add that of the factors, and write that of the input, where it is needed."""
        dfactors += sum(np.matmul(block.inputs.transpose(0, 2, 1), block.z))

    def gradient(self, dfactors: np.ndarray) -> np.ndarray:
        """The gradient of the weight from that of the factors."""
        return dfactors

    def _by_window(self, block: Block, *arrays: np.ndarray) -> list[np.ndarray]:
        return [array[block.images].reshape(-1, self.weight_shape[-1]) for array in arrays]

    def _blocks(self, part: slice) -> Iterator[Block]:
        channels, maps = self.weight_shape[1:]
        windows = math.prod(self.y_shape[:2])
        shapes = (self.planes, self.depth * channels), (self.planes, maps), (4, maps)
        flat = [np.empty(planes * IMAGES * windows * width, self.y.dtype) for planes, width in shapes]
        for start in range(part.start, part.stop, IMAGES):
            images = slice(start, min(start + IMAGES, part.stop))
            t = (images.stop - start) * windows
            sized = zip(flat, shapes, strict=True)
            yield Block(images, *(a[: planes * t * width].reshape(planes, t, width) for a, (planes, width) in sized))


class WinogradConv(Conv):
    """The same by F(2 x 2, 3 x 3) of Winograd (Lavin & Gray 2016, arXiv:1509.09308), with the gradient of its input.

    The outputs of a window are A^T [(G w G^T) * (B^T d B)] A, where d are the 4 x 4 inputs under it. The elementwise products,
    summed over channels, are 16 matrix products, with 2.25 times fewer multiplications than im2col.
    """

    planes, depth = 16, 1
    copy = staticmethod(kernels.tiles)
    # Of flattened 4 x 4, 2 x 2 and 3 x 3 matrices.
    A = np.kron(*2 * [np.array([[1, 0], [1, 1], [1, -1], [0, -1]])])
    G = np.kron(*2 * [np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])])

    def allocate(self, network: Network, start: int) -> None:
        super().allocate(network, start)
        self.A, self.G = self.A.astype(network.dtype), self.G.astype(network.dtype)

    def factors(self) -> np.ndarray:
        """G w G^T: (16, c, m)."""
        return (self.G @ self.weight.reshape(9, -1)).reshape(16, *self.weight_shape[1:])

    def multiply(self, block: Block, factors: np.ndarray) -> None:
        np.matmul(block.inputs, factors, out=block.products)
        np.matmul(self.A.T, block.products.reshape(16, -1), out=block.z.reshape(4, -1))

    def multiply_back(self, block: Block, transposed: np.ndarray, dfactors: np.ndarray) -> None:
        np.matmul(self.A, block.z.reshape(4, -1), out=block.products.reshape(16, -1))
        dfactors += np.matmul(block.inputs.transpose(0, 2, 1), block.products)
        np.matmul(block.products, transposed, out=block.inputs)
        kernels.untiled(block.inputs, self.dx[block.images])

    def gradient(self, dfactors: np.ndarray) -> np.ndarray:
        return self.G.T @ dfactors.reshape(16, -1)


class Dense(Layer):
    """x W + b, followed by ReLU in all but the last."""

    relu = True

    def forward(self, x: np.ndarray, part: slice, thread: int) -> np.ndarray:
        self.x = x.reshape(len(x), -1)
        y = np.dot(self.x[part], self.weight, out=self.y[part])
        y += self.bias
        if self.relu:
            np.maximum(y, 0, out=y)
        return self.y

    def backward(self, dy: np.ndarray, part: slice, thread: int) -> None:
        dy = dy[part]
        if self.relu:
            dy *= self.y[part] > 0
        dweight, dbias = self.gradients[thread]
        np.dot(self.x[part].T, dy, out=dweight)
        np.sum(dy, axis=0, out=dbias)
        np.dot(dy, self.weight.T, out=self.dx[part])


class Network:
    """Layers on flat arrays.

    `parameters` and `gradients` are flat: buffers of an Allreduce need no copies, an update is one loop, a checkpoint one array. Each
    of `threads` computes a part of the batch. BLAS is limited to one thread in the whole process: each of ours calls it.

    Args:
        batch: largest number of images at once. seed: of the initial weights, which torch would draw from the same range.
    """

    def __init__(
        self, layers: Sequence[Layer], *, batch: int = 128, seed: int = 0, dtype: str = "float32", threads: int = 1
    ) -> None:
        self.layers = layers
        self.layers[-1].relu = False
        self.batch, self.dtype, self.threads = batch, np.dtype(dtype), threads
        self._allocate(sum(layer.size for layer in self.layers))
        rng, parameters = np.random.default_rng(seed), []
        for layer in self.layers:
            layer.allocate(self, sum(map(len, parameters)))
            bound = math.prod(layer.weight_shape[:-1]) ** -0.5
            parameters.append(rng.uniform(-bound, bound, layer.size))
        self.parameters = np.concatenate(parameters)
        self._pool = ThreadPoolExecutor(threads)
        threadpool_limits(1, user_api="blas")

    def _allocate(self, size: int) -> None:
        self._parameters = self.empty((size,))
        self.partial = self.empty((self.threads, size))  # the gradients that each thread sums over its images
        self.gradients = self.partial[0]

    def empty(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array where the network computes."""
        return np.empty(shape, self.dtype)

    @property
    def parameters(self) -> np.ndarray:
        """All weights and biases; assigning to it copies the values."""
        return self._parameters

    @parameters.setter
    def parameters(self, values: np.ndarray) -> None:
        self._parameters[:] = values

    def forward(self, x: np.ndarray) -> np.ndarray:
        """x (n, h, w, c) -> logits (n, classes), overwritten by the next call."""

        def run(part: slice, thread: int) -> None:
            y = x
            for layer in self.layers:
                y = layer.forward(y, part, thread)

        self._each(run, len(x))
        return self.layers[-1].y[: len(x)]

    def loss(self, x: np.ndarray, labels: np.ndarray, ranks: int = 1) -> np.ndarray:
        """The forward pass and the loss, whose `outcome` is (mean, number of correct images).

        Returns the gradient of the logits (n, classes), for `backward`; of the mean over the images of all `ranks`.
        """
        *self.outcome, gradient = loss(self.forward(x), labels)
        gradient /= ranks
        return gradient

    def backward(self, dlogits: np.ndarray, ready: Ready | None = None) -> None:
        """Write `gradients` of the last forward pass; `ready(slice)` is called as soon as a slice of them is final."""
        dy = dlogits
        for layer in reversed(self.layers):
            self._each(lambda part, thread, layer=layer, dy=dy: layer.backward(dy, part, thread), len(dlogits))
            for other in self.partial[1:]:
                self.gradients[layer.slice] += other[layer.slice]
            if ready:
                ready(layer.slice)
            dy = layer.dx

    def _each(self, run: Callable[[slice, int], None], count: int) -> None:
        """Call `run(part, thread)` for each thread's part of `count` images."""
        if self.threads == 1:
            run(slice(0, count), 0)
            return
        edges = [count * thread // self.threads for thread in range(self.threads + 1)]
        list(self._pool.map(run, itertools.starmap(slice, itertools.pairwise(edges)), range(self.threads)))


class CNN(Network):
    """The network of the comparison; images of (h, w, c), h and w divisible by 4. Options are those of `Network`."""

    convolutions, dense = (Conv, WinogradConv), Dense

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (28, 28, 1),
        classes: int = 10,
        *,
        widths: tuple[int, int, int] = (32, 64, 128),
        **options: Any,
    ) -> None:
        height, width, channels = input_shape
        if height % 4 or width % 4:
            raise ValueError(f"expected images whose height and width are divisible by 4, found {height} x {width}")
        first, second, hidden = widths
        half, quarter = (height // 2, width // 2, first), (height // 4, width // 4, second)
        flat = math.prod(quarter)
        layers = (
            self.convolutions[0]((9, channels, first), half, input_shape),
            self.convolutions[1]((9, first, second), quarter, half),
            self.dense((flat, hidden), (hidden,), (flat,)),
            self.dense((hidden, classes), (classes,), (hidden,)),
        )
        super().__init__(layers, **options)


def loss(logits: np.ndarray, labels: np.ndarray) -> tuple[float, int, np.ndarray]:
    """Mean cross-entropy, number of correct images, and the gradient of the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    mean = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels], dtype=np.float64))
    gradient = exponentials / sums
    gradient[rows, labels] -= 1
    gradient /= len(labels)
    return mean, int(np.count_nonzero(logits.argmax(axis=1) == labels)), gradient


class SGD:
    """Stochastic gradient descent as torch's: momentum, L2 weight decay on all parameters."""

    def __init__(self, lr: float, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False) -> None:
        self.lr, self.momentum, self.weight_decay, self.nesterov = lr, momentum, weight_decay, nesterov
        self.velocity: np.ndarray | None = None

    def step(self, network: Network) -> None:
        """Update the parameters by the gradients."""
        if self.velocity is None:
            self.velocity = np.zeros_like(network.parameters)
        factors = map(network.dtype.type, (self.lr, self.momentum, self.weight_decay))
        kernels.sgd(network.parameters, network.gradients, self.velocity, *factors, self.nesterov)
