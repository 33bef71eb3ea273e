"""The network on a GPU: the heavy operations as CUDA kernels, behind the interface of `model`.

Parameters, activations and gradients stay on the device; all work is enqueued on one stream. With several ranks, gradients are staged through
page-locked memory, where MPI finds them. float32 only.

A convolution is a product of matrices, and so are its gradients. They are never stored: an element (i, k) of a matrix is
`values[positions[i] + depths[k]]`, and 1 where that is negative, so that a bias is one more row of a weight. Images have a border of zeros. The
outputs of a convolution are ordered by pooling window: four consecutive rows, which one thread computes.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, float32

from . import model

# Elements of k, and rows of a and of b, that a block reads at once; one more than used, to lie in different banks of memory.
LEFT, RIGHT = (16, 65), (16, 33)
EACH = 4  # rows and columns of a thread
THREADS = 128  # of a block of a product: 64 / EACH * 32 / EACH
BLOCK = 256  # threads of a block elsewhere
DEPTH = 128  # elements of k that a block has at least
BLOCKS = 512  # k is shared among as many blocks, so that products with few tiles fill the device
ONE = -(2**30)  # a position of ones


@cuda.jit(device=True, inline="always")
def thread():
    """The number of this thread in its block; the mask tells the compiler that it is not negative."""
    return cuda.threadIdx.x & (THREADS - 1)


@cuda.jit(device=True, inline="always")
def read(tile, values, positions, depths, first, stop, k, end):
    """The elements (first.. , k..) of a matrix -> tile; zeros from row `stop` and from `end` on."""
    deep, wide = tile.shape[0], tile.shape[1] - 1
    along = depths.size > 1 and depths[1] == depths[0] + 1  # neighbouring threads read neighbouring addresses
    for turn in range(deep * wide // THREADS):
        element = turn * THREADS + thread()
        i, j = element % wide, element // wide
        if along:
            i, j = element // deep, element % deep
        at = positions[min(first + i, stop - 1)] + depths[min(k + j, end - 1)]
        value = values[max(at, 0)]  # no branch, so that all loads are under way at once
        if at < 0:
            value = float32(1)
        if first + i >= stop or k + j >= end:
            value = float32(0)
        tile[j, i] = value


@cuda.jit(device=True, inline="always")
def multiplied(a, rows, a_depths, b, columns, b_depths, m, start, end, total):
    """The sum over k in [start, end) of a (i, k) * b (j, k) for this thread's `EACH` rows and columns -> total; returns the first of both."""
    left = cuda.shared.array(LEFT, float32)
    right = cuda.shared.array(RIGHT, float32)
    across = (RIGHT[1] - 1) // EACH  # threads, and columns between two of a thread
    y, x = thread() // across * EACH, thread() % across
    top, first = cuda.blockIdx.x * (LEFT[1] - 1), cuda.blockIdx.y * (RIGHT[1] - 1)
    for i in range(EACH):
        for j in range(EACH):
            total[i, j] = 0
    for k in range(start, end, LEFT[0]):
        read(left, a, rows, a_depths, top, m, k, end)
        read(right, b, columns, b_depths, first, columns.size, k, end)
        cuda.syncthreads()
        for pair in range(LEFT[0] // 2):  # the compiler unrolls the loops below
            for depth in range(2):
                for i in range(EACH):
                    for j in range(EACH):
                        total[i, j] += left[2 * pair + depth, y + i] * right[2 * pair + depth, x + j * across]
        cuda.syncthreads()
    return top + y, first + x


@cuda.jit
def product(a, rows, a_depths, b, columns, b_depths, parts, m, depth):
    """a (m, depth) times b (n, depth) transposed -> parts (p, m, n), where each part sums its share of k."""
    total = cuda.local.array((EACH, EACH), float32)
    part, n, share = cuda.blockIdx.z, columns.size, -(-depth // cuda.gridDim.z)
    end = min(depth, (part + 1) * share)
    row, column = multiplied(a, rows, a_depths, b, columns, b_depths, m, part * share, end, total)
    for i in range(EACH):
        for j in range(EACH):
            at = column + j * ((RIGHT[1] - 1) // EACH)
            if row + i < m and at < n:
                parts[(part * m + row + i) * n + at] = total[i, j]


@cuda.jit
def convolve(a, rows, a_depths, b, columns, b_depths, y, targets, where, m):
    """The product of a (m, k) and b (n, k), ReLU and the maximum of four rows -> y, whose windows are at `targets`.

    `where` (m / 4, n) is the maximum's position (0-3), 4 where ReLU is zero.
    """
    total = cuda.local.array((EACH, EACH), float32)
    row, column = multiplied(a, rows, a_depths, b, columns, b_depths, m, 0, a_depths.size, total)
    for j in range(EACH):
        at, window = column + j * ((RIGHT[1] - 1) // EACH), row // 4
        if row < m and at < columns.size:
            best, position = total[0, j], 0
            for i in range(1, 4):
                if total[i, j] > best:
                    best, position = total[i, j], i
            y[targets[window] + at] = float32(0) if best <= 0 else best
            where[window * columns.size + at] = 4 if best <= 0 else position


@cuda.jit
def summed(parts, count, out, size, relu):
    """The sum over the `count` parts of a product of this size, and ReLU."""
    i = cuda.grid(1)
    if i < size:
        total = float32(0)
        for part in range(count):
            total += parts[part * size + i]
        out[i] = float32(0) if relu and total <= 0 else total


@cuda.jit
def unpool(dy, where, centers, maps, dz, size):
    """The gradient of pooling and ReLU: dy (windows, maps) -> dz, whose outputs are at `centers`."""
    i = cuda.grid(1)
    if i < size:
        for position in range(4):
            here = where[i] == position
            dz[centers[i // maps * 4 + position] + i % maps] = dy[i] if here else float32(0)


@cuda.jit
def relu_gradient(y, dy, size):
    """Zero dy where y is zero."""
    i = cuda.grid(1)
    if i < size and y[i] == 0:
        dy[i] = 0


@cuda.jit
def cross_entropy(logits, labels, scale, dlogits, outcome, count):
    """`model.loss` of each image -> outcome (n, 2): loss, and whether it is correct; dlogits of the sum of losses times `scale`."""
    image = cuda.grid(1)
    if image < count:
        classes, label = logits.size // labels.size, labels[image]
        first, best = image * classes, 0
        for k in range(1, classes):
            if logits[first + k] > logits[first + best]:
                best = k
        total = float32(0)
        for k in range(classes):
            dlogits[first + k] = math.exp(logits[first + k] - logits[first + best])
            total += dlogits[first + k]
        for k in range(classes):
            dlogits[first + k] = (dlogits[first + k] / total - float32(k == label)) * scale
        outcome[image, 0] = math.log(total) + logits[first + best] - logits[first + label]
        outcome[image, 1] = float32(best == label)


@cuda.jit
def sgd(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov):
    """torch.optim.SGD."""
    i = cuda.grid(1)
    if i < parameters.size:
        g = gradients[i] + weight_decay * parameters[i]
        velocity[i] = momentum * velocity[i] + g
        parameters[i] -= lr * (g + momentum * velocity[i] if nesterov else velocity[i])


def use(device: int | None) -> None:
    """Run on this device from now on."""
    cuda.select_device(device or 0)


def table(positions: Any) -> Any:
    """Positions on the device."""
    return cuda.to_device(np.ravel(positions).astype(np.int32))


def tiles(m: int, n: int) -> tuple[int, int]:
    """The number of tiles of an (m, n) product."""
    return -(-m // (LEFT[1] - 1)), -(-n // (RIGHT[1] - 1))


@functools.cache
def scratch(size: int) -> Any:
    """An array for the parts of a product."""
    return cuda.device_array(size, np.float32)


class Matrix(NamedTuple):
    """An operand of a product; see the module."""

    values: Any
    positions: Any
    depths: Any


class Images:
    """`batch` images (h, w, c) in one flat array, with a border of zeros. A border of 0: rows (1, 1, c).

    Attributes:
        values: on the device. shape: of all, with borders. starts: the position of each image.
        patch: the positions of the 3 x 3 pixels under a filter. corners: where the filter of each pixel begins.
        inside: the positions of an image's own elements.
    """

    def __init__(self, batch: int, shape: tuple[int, int, int], border: int = 1) -> None:
        height, width, channels = shape
        self.shape = batch, height + 2 * border, width + 2 * border, channels
        grid = np.arange(math.prod(self.shape[1:])).reshape(self.shape[1:])
        self.values = cuda.to_device(np.zeros(math.prod(self.shape), np.float32))
        self.starts = grid.size * np.arange(batch)
        self.patch, self.inside = grid[:3, :3], grid[border : height + border, border : width + border]
        self.corners = self.starts[:, None, None] + grid[:height, :width, 0]


def by_window(positions: np.ndarray) -> np.ndarray:
    """Those of pixels (n, h, w) in the order of pooling windows: (n, h/2, w/2, 2, 2)."""
    images, height, width = positions.shape
    return positions.reshape(images, height // 2, 2, width // 2, 2).swapaxes(2, 3)


class Layer(model.Layer):
    """A product with the weight, whose last row is the bias.

    Attributes:
        x, y: what it reads and writes. dx: the gradient of the elements of x, without a border; the data need none.
        outputs: columns of the weight. depth: its rows.
    """

    def allocate(self, network: CNN, start: int) -> None:
        self.slice = slice(start, start + self.size)
        self.network, self.x = network, network.last
        self.weight, self.gradient = network._parameters[self.slice], network._gradients[self.slice]
        self.computed = cuda.event()  # the gradient, on the host
        self.outputs, self.depth = self.weight_shape[-1], self.size // self.weight_shape[-1]
        self.rows, self.columns = self.outputs * np.arange(self.depth), table(range(self.outputs))
        self.factors = Matrix(self.weight, self.columns, table(self.rows))
        self.dx = network.empty((network.batch * math.prod(self.x_shape),)) if start else None


class Conv(Layer):
    """Convolution, ReLU and pooling."""

    def allocate(self, network: CNN, start: int) -> None:
        super().allocate(network, start)
        x, y = self.x, Images(network.batch, self.y_shape)
        dz = Images(network.batch, (*self.x_shape[:2], self.outputs))
        taps, corners = table([*x.patch.flat, ONE]), table(by_window(x.corners))
        self.patches, self.transposed = Matrix(x.values, corners, taps), Matrix(x.values, taps, corners)
        self.y, self.targets = y, table(y.starts[:, None, None] + y.inside[..., 0])
        self.where = cuda.device_array(network.batch * math.prod(self.y_shape), np.uint8)
        self.dz = Matrix(dz.values, self.columns, table(by_window(dz.corners + dz.inside.flat[0])))
        channels = self.x_shape[-1]
        flipped = self.rows[:-1].reshape(9, channels, 1)[::-1, :1] + np.arange(self.outputs)
        self.dz_patches = Matrix(dz.values, table(dz.corners), table(dz.patch))
        self.flipped = Matrix(self.weight, table(self.rows[:channels]), table(flipped))
        network.last = y

    def forward(self, count: int) -> None:
        rows = count * math.prod(self.x_shape[:2])
        start = convolve[tiles(rows, self.outputs), THREADS, self.network.stream]
        start(*self.patches, *self.factors, self.y.values, self.targets, self.where, rows)

    def backward(self, dy: Any, count: int) -> Any:
        size, rows = count * math.prod(self.y_shape), count * math.prod(self.x_shape[:2])
        self.network.each(unpool, size, dy, self.where, self.dz.depths, self.outputs, self.dz.values, size)
        self.network.multiply(self.transposed, self.dz, self.gradient, self.depth, rows)
        if self.dx is not None:
            self.network.multiply(self.dz_patches, self.flipped, self.dx, rows, 9 * self.outputs)
        return self.dx


class Dense(Layer):
    """x W + b, followed by ReLU in all but the last."""

    relu = True

    def allocate(self, network: CNN, start: int) -> None:
        super().allocate(network, start)
        self.y = Images(network.batch, (1, 1, self.outputs), border=0)
        starts, elements = table(self.x.starts), table([*self.x.inside.flat, ONE])
        self.vectors = Matrix(self.x.values, starts, elements)
        self.transposed = Matrix(self.x.values, elements, starts)
        self.weight_rows = Matrix(self.weight, table(self.rows[:-1]), self.columns)
        self.y_starts = table(self.y.starts)
        network.last = self.y

    def forward(self, count: int) -> None:
        self.network.multiply(self.vectors, self.factors, self.y.values, count, self.depth, relu=self.relu)

    def backward(self, dy: Any, count: int) -> Any:
        if self.relu:
            self.network.each(relu_gradient, count * self.outputs, self.y.values, dy, count * self.outputs)
        dy_columns, dy_rows = Matrix(dy, self.columns, self.y_starts), Matrix(dy, self.y_starts, self.columns)
        self.network.multiply(self.transposed, dy_columns, self.gradient, self.depth, count)
        self.network.multiply(dy_rows, self.weight_rows, self.dx, count, self.outputs)
        return self.dx


class CNN(model.CNN):
    """`model.CNN` on a GPU. Images, labels and logits are NumPy arrays there too; the gradient of the logits stays on the device.

    `threads` are not used: one starts the kernels. `gradients` are written if `backward` has a `ready`; otherwise they stay on the device.
    """

    convolutions, dense = (Conv, Conv), Dense

    def __init__(self, *shape: Any, threads: int = 1, **options: Any) -> None:
        super().__init__(*shape, **options)

    def empty(self, shape: tuple[int, ...]) -> Any:
        return cuda.device_array(shape, np.float32)

    def _allocate(self, size: int) -> None:
        batch, classes = self.batch, self.layers[-1].y_shape[0]
        self.stream, self.copied, self.known = cuda.stream(), cuda.event(), cuda.event()
        self._parameters, self._gradients = self.empty((size,)), self.empty((size,))
        self.gradients, self.reduced = cuda.pinned_array(size, np.float32), False
        self.last = self.images = Images(batch, self.layers[0].x_shape)
        self.dlogits, self.labels = self.empty((batch * classes,)), cuda.device_array(batch, np.int64)
        self._outcome, self._known = self.empty((batch, 2)), cuda.pinned_array((batch, 2), np.float32)
        self.staged = cuda.pinned_array(self.images.shape, np.float32)
        self.staged[:], self.staged_labels = 0, cuda.pinned_array(batch, np.int64)

    @property
    def parameters(self) -> np.ndarray:
        """A copy on the host."""
        return self._parameters.copy_to_host()

    @parameters.setter
    def parameters(self, values: np.ndarray) -> None:
        self._parameters.copy_to_device(np.asarray(values, np.float32))

    @property
    def outcome(self) -> tuple[float, int]:
        """Mean loss and number of correct images of the last `loss`; waits for it."""
        self.known.synchronize()
        losses, correct = self._known[: self.count].T
        return float(np.mean(losses, dtype=np.float64)), int(correct.sum())

    def forward(self, x: np.ndarray) -> np.ndarray:
        self._forward(x, 0)
        return self.layers[-1].y.values.copy_to_host().reshape(self.batch, -1)[: len(x)]

    def loss(self, x: np.ndarray, labels: np.ndarray, ranks: int = 1) -> Any:
        self._forward(x, labels)
        logits, scale = self.layers[-1].y.values, np.float32(1 / (self.count * ranks))
        self.each(cross_entropy, self.count, logits, self.labels, scale, self.dlogits, self._outcome, self.count)
        self._outcome.copy_to_host(self._known, self.stream)
        self.known.record(self.stream)
        return self.dlogits

    def backward(self, dlogits: Any, ready: model.Ready | None = None) -> None:
        dy, self.reduced = dlogits, bool(ready)
        for layer in reversed(self.layers):
            dy = layer.backward(dy, self.count)
            if ready:
                layer.gradient.copy_to_host(self.gradients[layer.slice], self.stream)
                layer.computed.record(self.stream)
        for layer in reversed(self.layers if ready else ()):
            layer.computed.synchronize()
            ready(layer.slice)

    def _forward(self, x: np.ndarray, labels: np.ndarray | int) -> None:
        self.count = len(x)
        self.copied.synchronize()  # what is staged is free again
        self.staged[: self.count, 1:-1, 1:-1], self.staged_labels[: self.count] = x, labels
        size = self.count * math.prod(self.images.shape[1:])
        self.images.values[:size].copy_to_device(self.staged.reshape(-1)[:size], self.stream)
        self.labels.copy_to_device(self.staged_labels, self.stream)
        self.copied.record(self.stream)
        for layer in self.layers:
            layer.forward(self.count)

    def each(self, kernel: Any, count: int, *arguments: Any) -> None:
        """Start a kernel with one thread for each of `count` elements."""
        kernel[-(-count // BLOCK), BLOCK, self.stream](*arguments)

    def multiply(self, a: Matrix, b: Matrix, out: Any, m: int, depth: int, relu: bool = False) -> None:
        """out (m, n) = a (m, depth) times b (n, depth) transposed, and ReLU."""
        grid = tiles(m, b.positions.size)
        count = max(1, min(depth // DEPTH, BLOCKS // math.prod(grid)))
        size = m * b.positions.size
        parts = scratch(count * size) if count > 1 else out
        product[(*grid, count), THREADS, self.stream](*a, *b, parts, m, depth)
        if count > 1 or relu:
            self.each(summed, size, parts, count, out, size, relu)


class SGD(model.SGD):
    """`model.SGD` on a GPU; gradients that were reduced come from the host."""

    def step(self, network: CNN) -> None:
        parameters, gradients = network._parameters, network._gradients
        if network.reduced:
            gradients.copy_to_device(network.gradients, network.stream)
        if self._velocity is None:
            self.velocity = np.zeros(parameters.size, np.float32)
        factors = map(np.float32, (self.lr, self.momentum, self.weight_decay))
        network.each(sgd, parameters.size, parameters, gradients, self._velocity, *factors, self.nesterov)

    @property
    def velocity(self) -> np.ndarray | None:
        """A copy on the host."""
        return None if self._velocity is None else self._velocity.copy_to_host()

    @velocity.setter
    def velocity(self, values: np.ndarray | None) -> None:
        self._velocity = None if values is None else cuda.to_device(values)
