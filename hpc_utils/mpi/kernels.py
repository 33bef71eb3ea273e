"""The model's loops, compiled by Numba for one thread; they release the GIL. Images are (n, h, w, c), channels last.

Each convolution is 3 x 3 with a border of zeros, followed by bias, ReLU and 2 x 2 max pooling, fused per pooling window. `where`
keeps the position (0-3) of each window's maximum, or 4 where ReLU is zero: all that the backward pass needs.

`direct_*` loop over the filter: best for few input channels, where a matrix product has nothing to multiply. `winograd_*`
leave the products to BLAS and compute F(2 x 2, 3 x 3) of Lavin & Gray (2016, arXiv:1509.09308): a window's four outputs
are A^T [(G w G^T) * (B^T d B)] A, with d the 4 x 4 inputs under it. Summed over channels, the elementwise products of all windows
are 16 matrix products, with 2.25 times fewer multiplications than im2col.
"""

from __future__ import annotations

import functools

import numba
import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 (the BLAS of np.dot in compiled code)

# Sums may use fused multiply-add; NaN and infinity keep their meaning, so that a diverged loss shows.
compiled = functools.partial(numba.njit, nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")

IMAGES = 4  # for the scratch arrays of a block of images to stay in the L2 cache
# Row i of B^T d is d[FIRST[i]] + SIGN[i] * d[SECOND[i]].
FIRST, SECOND, SIGN = (0, 1, 2, 1), (2, 2, 1, 3), (-1, 1, -1, -1)
_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
G = np.kron(_G, _G)  # (16, 9): G w G^T of flattened filters


@compiled
def pad(image, padded):
    """Copy (h, w, c) into the middle of (h + 2, w + 2, c)."""
    height, width, channels = image.shape
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                padded[y + 1, x + 1, c] = image[y, x, c]


@compiled
def largest(z0, z1, z2, z3):
    """The maximum of a window, and its position."""
    best, at = z0, 0
    best, at = (z1, 1) if z1 > best else (best, at)
    best, at = (z2, 2) if z2 > best else (best, at)
    return (z3, 3) if z3 > best else (best, at)


@compiled
def window(g, at):
    """The gradient of a window's four outputs: `g` at its maximum."""
    zero = g * 0
    return g if at == 0 else zero, g if at == 1 else zero, g if at == 2 else zero, g if at == 3 else zero


@compiled
def direct_forward(x, weight, bias, y, where):
    """x (n, h, w, c), weight (9, c, m), bias (m,) -> y (n, h/2, w/2, m), where."""
    images, height, width, channels = x.shape
    maps = len(bias)
    p = np.zeros((height + 2, width + 2, channels), x.dtype)
    z = np.empty((4, maps), x.dtype)
    for i in range(images):
        pad(x[i], p)
        for row in range(height // 2):
            for column in range(width // 2):
                z[:] = 0
                for c in range(channels):
                    d = p[2 * row : 2 * row + 4, 2 * column : 2 * column + 4, c]
                    d00, d01, d02, d03 = d[0, 0], d[0, 1], d[0, 2], d[0, 3]
                    d10, d11, d12, d13 = d[1, 0], d[1, 1], d[1, 2], d[1, 3]
                    d20, d21, d22, d23 = d[2, 0], d[2, 1], d[2, 2], d[2, 3]
                    d30, d31, d32, d33 = d[3, 0], d[3, 1], d[3, 2], d[3, 3]
                    for m in range(maps):
                        w0, w1, w2 = weight[0, c, m], weight[1, c, m], weight[2, c, m]
                        w3, w4, w5 = weight[3, c, m], weight[4, c, m], weight[5, c, m]
                        w6, w7, w8 = weight[6, c, m], weight[7, c, m], weight[8, c, m]
                        z[0, m] += d00*w0 + d01*w1 + d02*w2 + d10*w3 + d11*w4 + d12*w5 + d20*w6 + d21*w7 + d22*w8  # fmt: skip
                        z[1, m] += d01*w0 + d02*w1 + d03*w2 + d11*w3 + d12*w4 + d13*w5 + d21*w6 + d22*w7 + d23*w8  # fmt: skip
                        z[2, m] += d10*w0 + d11*w1 + d12*w2 + d20*w3 + d21*w4 + d22*w5 + d30*w6 + d31*w7 + d32*w8  # fmt: skip
                        z[3, m] += d11*w0 + d12*w1 + d13*w2 + d21*w3 + d22*w4 + d23*w5 + d31*w6 + d32*w7 + d33*w8  # fmt: skip
                for m in range(maps):
                    best, at = largest(z[0, m], z[1, m], z[2, m], z[3, m])
                    best += bias[m]
                    y[i, row, column, m] = best if not best <= 0 else 0
                    where[i, row, column, m] = at if not best <= 0 else 4


@compiled
def direct_backward(x, weight, dy, where, dweight, dbias, dx):
    """The gradients of weight and bias, overwritten. There is no `dx`: the input is the data."""
    images, height, width, channels = x.shape
    maps = len(dbias)
    p = np.zeros((height + 2, width + 2, channels), x.dtype)
    g = np.empty((4, maps), x.dtype)
    dweight[:] = 0
    dbias[:] = 0
    for i in range(images):
        pad(x[i], p)
        for row in range(height // 2):
            for column in range(width // 2):
                for m in range(maps):
                    at = where[i, row, column, m]
                    g[0, m], g[1, m], g[2, m], g[3, m] = window(dy[i, row, column, m], at)
                    dbias[m] += g[0, m] + g[1, m] + g[2, m] + g[3, m]
                for c in range(channels):
                    for tap in range(9):
                        v, u = 2 * row + tap // 3, 2 * column + tap % 3
                        d0, d1, d2, d3 = p[v, u, c], p[v, u + 1, c], p[v + 1, u, c], p[v + 1, u + 1, c]
                        for m in range(maps):
                            dweight[tap, c, m] += d0 * g[0, m] + d1 * g[1, m] + d2 * g[2, m] + d3 * g[3, m]


@compiled
def tiles(p, q, v, first):
    """B^T d B of each window of a padded image: v (16, windows, c) from window `first` on; `q` is scratch."""
    height, width, channels = p.shape
    for row in range(height // 2 - 1):
        for i in range(4):
            for x in range(width):
                for c in range(channels):
                    q[i, x, c] = p[2 * row + FIRST[i], x, c] + SIGN[i] * p[2 * row + SECOND[i], x, c]
        for i in range(4):
            for j in range(4):
                t = first + row * (width // 2 - 1)
                for x in range(0, width - 2, 2):
                    for c in range(channels):
                        v[4 * i + j, t + x // 2, c] = q[i, x + FIRST[j], c] + SIGN[j] * q[i, x + SECOND[j], c]


@compiled
def untiled(v, q, p, first):
    """The transpose of `tiles`: the sum of what each window gives to its 4 x 4 inputs."""
    height, width, channels = p.shape
    p[:] = 0
    for row in range(height // 2 - 1):
        q[:] = 0
        for i in range(4):
            for j in range(4):
                t = first + row * (width // 2 - 1)
                for x in range(0, width - 2, 2):
                    for c in range(channels):
                        q[i, x + FIRST[j], c] += v[4 * i + j, t + x // 2, c]
                        q[i, x + SECOND[j], c] += SIGN[j] * v[4 * i + j, t + x // 2, c]
        for i in range(4):
            for x in range(width):
                for c in range(channels):
                    p[2 * row + FIRST[i], x, c] += q[i, x, c]
                    p[2 * row + SECOND[i], x, c] += SIGN[i] * q[i, x, c]


@compiled
def pooled(s, bias, y, where, first):
    """A^T s A of each window from `first` on, then bias, ReLU and pooling: y (h/2, w/2, m)."""
    rows, columns, maps = y.shape
    for row in range(rows):
        for column in range(columns):
            t = first + row * columns + column
            for m in range(maps):
                a0, b0 = s[0, t, m] + s[4, t, m] + s[8, t, m], s[4, t, m] - s[8, t, m] - s[12, t, m]
                a1, b1 = s[1, t, m] + s[5, t, m] + s[9, t, m], s[5, t, m] - s[9, t, m] - s[13, t, m]
                a2, b2 = s[2, t, m] + s[6, t, m] + s[10, t, m], s[6, t, m] - s[10, t, m] - s[14, t, m]
                a3, b3 = s[3, t, m] + s[7, t, m] + s[11, t, m], s[7, t, m] - s[11, t, m] - s[15, t, m]
                best, at = largest(a0 + a1 + a2, a1 - a2 - a3, b0 + b1 + b2, b1 - b2 - b3)
                best += bias[m]
                y[row, column, m] = best if not best <= 0 else 0
                where[row, column, m] = at if not best <= 0 else 4


@compiled
def unpooled(dy, where, s, dbias, first):
    """The transpose of `pooled`: A dz A^T of each window, and the sum of the bias's gradient."""
    rows, columns, maps = dy.shape
    for row in range(rows):
        for column in range(columns):
            t = first + row * columns + column
            for m in range(maps):
                z0, z1, z2, z3 = window(dy[row, column, m], where[row, column, m])
                dbias[m] += z0 + z1 + z2 + z3
                s[0, t, m], s[1, t, m], s[2, t, m], s[3, t, m] = z0, z0 + z1, z0 - z1, -z1
                a, b = z0 + z2, z1 + z3
                s[4, t, m], s[5, t, m], s[6, t, m], s[7, t, m] = a, a + b, a - b, -b
                a, b = z0 - z2, z1 - z3
                s[8, t, m], s[9, t, m], s[10, t, m], s[11, t, m] = a, a + b, a - b, -b
                s[12, t, m], s[13, t, m], s[14, t, m], s[15, t, m] = -z2, -z2 - z3, z3 - z2, z3


@compiled
def winograd_forward(x, weight, bias, y, where):
    """x (n, h, w, c), weight (9, c, m), bias (m,) -> y (n, h/2, w/2, m), where; `IMAGES` at a time."""
    images, height, width, channels = x.shape
    maps, windows = len(bias), height // 2 * (width // 2)
    u = np.dot(G.astype(x.dtype), weight.reshape(9, -1)).reshape(16, channels, maps)
    p, q = np.zeros((height + 2, width + 2, channels), x.dtype), np.empty((4, width + 2, channels), x.dtype)
    v, s = np.empty((16, IMAGES * windows, channels), x.dtype), np.empty((16, IMAGES * windows, maps), x.dtype)
    for begun in range(0, images, IMAGES):
        count = min(IMAGES, images - begun)
        for i in range(count):
            pad(x[begun + i], p)
            tiles(p, q, v, i * windows)
        for e in range(16):
            np.dot(v[e, : count * windows], u[e], s[e, : count * windows])
        for i in range(count):
            pooled(s, bias, y[begun + i], where[begun + i], i * windows)


@compiled
def winograd_backward(x, weight, dy, where, dweight, dbias, dx):
    """The gradients of weight, bias and x, overwritten; `tiles` is cheaper to repeat than to keep."""
    images, height, width, channels = x.shape
    maps, windows = len(dbias), height // 2 * (width // 2)
    u = np.dot(G.astype(x.dtype), weight.reshape(9, -1)).reshape(16, channels, maps)
    du, product = np.zeros_like(u), np.empty_like(u[0])
    p, q = np.zeros((height + 2, width + 2, channels), x.dtype), np.empty((4, width + 2, channels), x.dtype)
    dp = np.empty_like(p)
    v, s = np.empty((16, IMAGES * windows, channels), x.dtype), np.empty((16, IMAGES * windows, maps), x.dtype)
    dbias[:] = 0
    for begun in range(0, images, IMAGES):
        count = min(IMAGES, images - begun)
        for i in range(count):
            pad(x[begun + i], p)
            tiles(p, q, v, i * windows)
            unpooled(dy[begun + i], where[begun + i], s, dbias, i * windows)
        for e in range(16):
            ve, se = v[e, : count * windows], s[e, : count * windows]
            np.dot(ve.T, se, product)
            du[e] += product
            np.dot(se, u[e].T, ve)
        for i in range(count):
            untiled(v, q, dp, i * windows)
            dx[begun + i] = dp[1:-1, 1:-1]
    np.dot(G.T.astype(x.dtype), du.reshape(16, -1), dweight.reshape(9, -1))


@compiled
def sgd(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov):
    """torch.optim.SGD in one pass."""
    for i in range(len(parameters)):
        g = gradients[i] + weight_decay * parameters[i]
        velocity[i] = momentum * velocity[i] + g
        parameters[i] -= lr * (g + momentum * velocity[i] if nesterov else velocity[i])
