"""The network on a GPU: the heavy operations as CUDA kernels, behind the interface of `model`.

Parameters and activations stay on the device. Gradients are staged through page-locked memory, where MPI finds them. Convolutions are
im2col and a matrix product. float32 only.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import cuda, float32

from . import model

TILE = 16  # threads of a block in each direction of a product
BLOCK = 256  # threads of a block elsewhere
DEPTH = 1024  # elements of a dot product that one block sums, so that tall products fill the device


@cuda.jit(device=True, inline="always")
def element(matrix, i, j):
    """Zero beyond the edges."""
    return matrix[i, j] if i < matrix.shape[0] and j < matrix.shape[1] else float32(0)


@cuda.jit
def product(a, b, a_transposed, b_transposed, parts):
    """a (m, k) @ b (k, n) -> parts (p, m, n), where part z sums its share of k; a or b may be stored transposed.

    A block computes a tile: it reads tiles of a and b into shared memory, neighbouring threads from neighbouring addresses.
    """
    x, y, part = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.z
    top, first = cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    total = float32(0)
    depth = a.shape[0] if a_transposed else a.shape[1]
    tiles = (depth + TILE - 1) // TILE
    share = (tiles + parts.shape[0] - 1) // parts.shape[0]
    for tile in range(part * share, min(tiles, (part + 1) * share)):
        k = tile * TILE
        if a_transposed:
            left[x, y] = element(a, k + y, top + x)
        else:
            left[y, x] = element(a, top + y, k + x)
        if b_transposed:
            right[x, y] = element(b, first + y, k + x)
        else:
            right[y, x] = element(b, k + y, first + x)
        cuda.syncthreads()
        for i in range(TILE):
            total += left[y, i] * right[i, x]
        cuda.syncthreads()
    if top + y < parts.shape[1] and first + x < parts.shape[2]:
        parts[part, top + y, first + x] = total


@cuda.jit
def summed(parts, out):
    """The sum over the parts (p, m, n) of a product."""
    i = cuda.grid(1)
    if i < out.size:
        row, column = i // out.shape[1], i % out.shape[1]
        total = float32(0)
        for part in range(parts.shape[0]):
            total += parts[part, row, column]
        out[row, column] = total


@cuda.jit
def im2col(x, columns):
    """x (n, h, w, c) -> columns (n * h * w, 9 * c): the inputs of each output, zeros beyond the border."""
    i = cuda.grid(1)
    _, height, width, channels = x.shape
    if i < columns.size:
        output, k = i // columns.shape[1], i % columns.shape[1]
        tap, c = k // channels, k % channels
        row, column = output // width % height + tap // 3 - 1, output % width + tap % 3 - 1
        inside = 0 <= row < height and 0 <= column < width
        columns[output, k] = x[output // (height * width), row, column, c] if inside else float32(0)


@cuda.jit
def col2im(columns, x):
    """The transpose of `im2col`: each input's sum over the outputs that read it."""
    i = cuda.grid(1)
    _, height, width, channels = x.shape
    if i < x.size:
        pixel, c = i // channels, i % channels
        image, row, column = pixel // (height * width), pixel // width % height, pixel % width
        total = float32(0)
        for tap in range(9):
            y, k = row - tap // 3 + 1, column - tap % 3 + 1
            if 0 <= y < height and 0 <= k < width:
                total += columns[(image * height + y) * width + k, tap * channels + c]
        x[image, row, column, c] = total


@cuda.jit
def pool(z, bias, y, where):
    """z (n, h, w, m) -> y (n, h/2, w/2, m): bias, ReLU and maximum; `where` is its position (0-3), 4 where ReLU is zero."""
    i = cuda.grid(1)
    _, rows, columns, maps = y.shape
    if i < y.size:
        window, m = i // maps, i % maps
        image, row, column = window // (rows * columns), window // columns % rows, window % columns
        best, at = z[image, 2 * row, 2 * column, m], 0
        for position in range(1, 4):
            other = z[image, 2 * row + position // 2, 2 * column + position % 2, m]
            if other > best:
                best, at = other, position
        best += bias[m]
        y[image, row, column, m] = float32(0) if best <= 0 else best
        where[image, row, column, m] = 4 if best <= 0 else at


@cuda.jit
def unpool(dy, where, dz):
    """The gradient of z."""
    i = cuda.grid(1)
    _, height, width, maps = dz.shape
    if i < dz.size:
        pixel, m = i // maps, i % maps
        image, row, column = pixel // (height * width), pixel // width % height, pixel % width
        at = where[image, row // 2, column // 2, m]
        here = at == row % 2 * 2 + column % 2
        dz[image, row, column, m] = dy[image, row // 2, column // 2, m] if here else float32(0)


@cuda.jit
def add_bias(y, bias, relu):
    """y (n, m) + bias (m,), in place, and ReLU."""
    i = cuda.grid(1)
    if i < y.size:
        row, column = i // y.shape[1], i % y.shape[1]
        value = y[row, column] + bias[column]
        y[row, column] = float32(0) if relu and value <= 0 else value


@cuda.jit
def relu_gradient(y, dy):
    """Zero dy (n, m) where y is zero."""
    i = cuda.grid(1)
    if i < y.size:
        row, column = i // y.shape[1], i % y.shape[1]
        if y[row, column] == 0:
            dy[row, column] = 0


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


def each(kernel: Any, count: int, *arguments: Any) -> None:
    """Start a kernel with one thread for each of `count` elements."""
    kernel[-(-count // BLOCK), BLOCK](*arguments)


@functools.cache
def scratch(*shape: int) -> Any:
    """An array for the parts of products of this shape."""
    return cuda.device_array(shape, np.float32)


def multiply(a: Any, b: Any, out: Any, *, a_transposed: bool = False, b_transposed: bool = False) -> None:
    """out (m, n) = a (m, k) @ b (k, n); a or b may be stored transposed."""
    m, n = out.shape
    count = -(-a.shape[0 if a_transposed else 1] // DEPTH)
    parts = out.reshape(1, m, n) if count == 1 else scratch(count, m, n)
    grid = -(-n // TILE), -(-m // TILE), count
    product[grid, (TILE, TILE)](a, b, a_transposed, b_transposed, parts)
    if count > 1:
        each(summed, out.size, parts, out)


class Layer(model.Layer):
    """A product with the weight; `ones` sum the gradient of the bias."""

    def allocate(self, network: CNN, start: int) -> None:
        super().allocate(network, start)
        shape = math.prod(self.weight_shape[:-1]), self.weight_shape[-1]
        ((dweight, dbias),) = self.gradients
        self.weight, self.dweight = self.weight.reshape(shape), dweight.reshape(shape)
        self.dbias, self.ones = dbias.reshape(1, -1), network.ones

    def multiply_back(self, x: Any, dz: Any, dx: Any) -> None:
        """The gradients of weight, bias and x."""
        multiply(x, dz, self.dweight, a_transposed=True)
        multiply(self.ones[: len(dz)].reshape(1, -1), dz, self.dbias)
        if dx is not None:
            multiply(dz, self.weight, dx, b_transposed=True)


class Conv(Layer):
    """Convolution by im2col, ReLU and pooling."""

    def allocate(self, network: CNN, start: int) -> None:
        super().allocate(network, start)
        height, width, channels = self.x_shape
        rows, maps = network.batch * height * width, self.weight_shape[-1]
        self.where = cuda.device_array(self.y.shape, np.uint8)
        self.columns, self.z = network.empty((rows, 9 * channels)), network.empty((rows, maps))
        self.dcolumns = network.empty(self.columns.shape) if start else None  # the data need no gradient

    def forward(self, x: Any, part: slice, thread: int) -> Any:
        columns, z, windows = self._rows(part, self.columns, self.z)
        y = self.y[part]
        each(im2col, columns.size, x, columns)
        multiply(columns, self.weight, z)
        each(pool, y.size, windows, self.bias, y, self.where[part])
        return y

    def backward(self, dy: Any, part: slice, thread: int) -> None:
        columns, dz, windows = self._rows(part, self.columns, self.z)
        each(unpool, dz.size, dy[part].reshape(-1, *self.y_shape), self.where[part], windows)
        if self.dcolumns is None:
            self.multiply_back(columns, dz, None)
            return
        dcolumns, dx = self.dcolumns[: len(columns)], self.dx[part]
        self.multiply_back(columns, dz, dcolumns)
        each(col2im, dx.size, dcolumns, dx)

    def _rows(self, part: slice, columns: Any, z: Any) -> tuple[Any, Any, Any]:
        """The rows of these images, and those of z as (n, h, w, m)."""
        height, width, _ = self.x_shape
        rows = part.stop * height * width
        return columns[:rows], z[:rows], z[:rows].reshape(part.stop, height, width, z.shape[1])


class Dense(Layer):
    """x W + b, followed by ReLU in all but the last."""

    relu = True

    def forward(self, x: Any, part: slice, thread: int) -> Any:
        self.x, y = x.reshape(len(x), self.x_shape[0]), self.y[part]
        multiply(self.x, self.weight, y)
        each(add_bias, y.size, y, self.bias, self.relu)
        return y

    def backward(self, dy: Any, part: slice, thread: int) -> None:
        dy = dy[part]
        if self.relu:
            each(relu_gradient, dy.size, self.y[part], dy)
        self.multiply_back(self.x, dy, self.dx[part])


class CNN(model.CNN):
    """`model.CNN` on a GPU. Images, logits and their gradient are NumPy arrays there too; `threads` are not used: one starts the kernels."""

    convolutions, dense = (Conv, Conv), Dense

    def __init__(self, *shape: Any, threads: int = 1, **options: Any) -> None:
        super().__init__(*shape, **options)

    def empty(self, shape: tuple[int, ...]) -> Any:
        return cuda.device_array(shape, np.float32)

    def _allocate(self, size: int) -> None:
        self._parameters, gradients = self.empty((size,)), self.empty((size,))
        self.partial, self.gradients = [gradients], cuda.pinned_array(size, np.float32)
        self.ones = cuda.to_device(np.ones(self.batch * math.prod(self.layers[0].x_shape), np.float32))

    @property
    def parameters(self) -> np.ndarray:
        """A copy on the host."""
        return self._parameters.copy_to_host()

    @parameters.setter
    def parameters(self, values: np.ndarray) -> None:
        self._parameters.copy_to_device(np.asarray(values, np.float32))

    def forward(self, x: np.ndarray) -> np.ndarray:
        return super().forward(cuda.to_device(x)).copy_to_host()

    def backward(self, dlogits: np.ndarray, ready: model.Ready = lambda part: None) -> None:
        def staged(part: slice) -> None:
            self.partial[0][part].copy_to_host(self.gradients[part])  # waits for the kernels before
            ready(part)

        super().backward(cuda.to_device(dlogits), staged)


class SGD(model.SGD):
    """`model.SGD` on a GPU; `gradients` come from the host."""

    def step(self, network: CNN) -> None:
        parameters, (gradients,) = network._parameters, network.partial
        gradients.copy_to_device(network.gradients)
        if self._velocity is None:
            self.velocity = np.zeros(parameters.size, np.float32)
        factors = map(np.float32, (self.lr, self.momentum, self.weight_decay))
        each(sgd, parameters.size, parameters, gradients, self._velocity, *factors, self.nesterov)

    @property
    def velocity(self) -> np.ndarray | None:
        """A copy on the host."""
        return None if self._velocity is None else self._velocity.copy_to_host()

    @velocity.setter
    def velocity(self, values: np.ndarray | None) -> None:
        self._velocity = None if values is None else cuda.to_device(values)
