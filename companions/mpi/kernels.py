"""The model's loops, compiled by Numba; they run in one thread and release the GIL. Images are (n, h, w, c), channels last.

A convolution (3 x 3, with a border of zeros) is followed by bias, ReLU and 2 x 2 max pooling. A pooling window, `t`, has outputs
at four positions: z (4, t, m) for the windows of all images and m maps. `im2col` and `tiles` copy what the windows read to where BLAS
multiplies it, `pool` and `unpool` finish what it computed.
"""

from __future__ import annotations

import functools

import numba
import numpy as np

# Sums may use fused multiply-add; NaN and infinity keep their meaning, so that a diverged loss shows.
compiled = functools.partial(numba.njit, nogil=True, cache=True, fastmath={"contract", "nsz"}, error_model="numpy")

FIRST, SECOND, SIGN = (0, 1, 2, 1), (2, 2, 1, 3), (-1, 1, -1, -1)  # B^T d of Winograd: d[FIRST] + SIGN * d[SECOND]


@compiled
def pad(image, padded):
    """Copy (h, w, c) into the middle of (h + 2, w + 2, c)."""
    height, width, channels = image.shape
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                padded[y + 1, x + 1, c] = image[y, x, c]


@compiled
def im2col(x, columns):
    """x (n, h, w, c) -> columns (4, t, 9 * c): the inputs of each output."""
    images, height, width, channels = x.shape
    p = np.zeros((height + 2, width + 2, channels), x.dtype)
    rows, three = p.reshape(height + 2, -1), 3 * channels
    for i in range(images):
        pad(x[i], p)
        for position in range(4):
            t = i * (height // 2) * (width // 2)
            for row in range(position // 2, height, 2):
                for column in range(position % 2, width, 2):
                    for y in range(3):
                        for k in range(3 * channels):
                            columns[position, t, three * y + k] = rows[row + y, column * channels + k]
                    t += 1


@compiled
def tiles(x, v):
    """x (n, h, w, c) -> v (16, t, c): Winograd's B^T d B, with d the 4 x 4 inputs under a window."""
    images, height, width, channels = x.shape
    p = np.zeros((height + 2, width + 2, channels), x.dtype)
    q = np.empty((4, width + 2, channels), x.dtype)
    t = 0
    for image in range(images):
        pad(x[image], p)
        for row in range(0, height, 2):
            for i in range(4):
                for k in range(width + 2):
                    for c in range(channels):
                        q[i, k, c] = p[row + FIRST[i], k, c] + SIGN[i] * p[row + SECOND[i], k, c]
            for i in range(4):
                for j in range(4):
                    for k in range(width // 2):
                        for c in range(channels):
                            v[4 * i + j, t + k, c] = q[i, 2 * k + FIRST[j], c] + SIGN[j] * q[i, 2 * k + SECOND[j], c]
            t += width // 2


@compiled
def untiled(v, x):
    """The transpose of `tiles`: each input's sum over the windows that read it."""
    images, height, width, channels = x.shape
    p = np.empty((height + 2, width + 2, channels), x.dtype)
    q = np.empty((4, width + 2, channels), x.dtype)
    t = 0
    for image in range(images):
        p[:] = 0
        for row in range(0, height, 2):
            q[:] = 0
            for i in range(4):
                for k in range(width // 2):
                    # A loop for each target: LLVM does not vectorise the four as one.
                    v0, v1, v2, v3 = v[4 * i, t + k], v[4 * i + 1, t + k], v[4 * i + 2, t + k], v[4 * i + 3, t + k]
                    for c in range(channels):
                        q[i, 2 * k, c] += v0[c]
                    for c in range(channels):
                        q[i, 2 * k + 1, c] += v1[c] - v2[c] + v3[c]
                    for c in range(channels):
                        q[i, 2 * k + 2, c] += v1[c] + v2[c] - v0[c]
                    for c in range(channels):
                        q[i, 2 * k + 3, c] -= v3[c]
            for k in range(width + 2):
                for c in range(channels):
                    p[row, k, c] += q[0, k, c]
                    p[row + 1, k, c] += q[1, k, c] - q[2, k, c] + q[3, k, c]
                    p[row + 2, k, c] += q[1, k, c] + q[2, k, c] - q[0, k, c]
                    p[row + 3, k, c] -= q[3, k, c]
            t += width // 2
        for y in range(height):
            for k in range(width):
                for c in range(channels):
                    x[image, y, k, c] = p[y + 1, k + 1, c]


@compiled
def largest(z0, z1, z2, z3, bias):
    """ReLU of the maximum of a window, and its position; 4 where ReLU is zero. NaN stays."""
    best, at = z0, 0
    best, at = (z1, 1) if z1 > best else (best, at)
    best, at = (z2, 2) if z2 > best else (best, at)
    best, at = (z3, 3) if z3 > best else (best, at)
    best += bias
    return (best * 0, 4) if best <= 0 else (best, at)


@compiled
def window(g, at):
    """The gradient of a window's four outputs: `g` at the position of its maximum."""
    zero = g * 0
    return g if at == 0 else zero, g if at == 1 else zero, g if at == 2 else zero, g if at == 3 else zero


@compiled
def pool(z, bias, y, where):
    """z (4, t, m), bias (m,) -> y (t, m), and `where` for the backward pass."""
    for t in range(len(y)):
        for m in range(len(bias)):
            y[t, m], where[t, m] = largest(z[0, t, m], z[1, t, m], z[2, t, m], z[3, t, m], bias[m])


@compiled
def unpool(dy, where, dz, dbias):
    """The gradient of z, and what these windows add to that of the bias."""
    for t in range(len(dy)):
        for m in range(len(dbias)):
            z0, z1, z2, z3 = window(dy[t, m], where[t, m])
            dbias[m] += z0 + z1 + z2 + z3
            dz[0, t, m], dz[1, t, m], dz[2, t, m], dz[3, t, m] = z0, z1, z2, z3


@compiled
def sgd(parameters, gradients, velocity, lr, momentum, weight_decay, nesterov):
    """torch.optim.SGD in one pass."""
    for i in range(len(parameters)):
        g = gradients[i] + weight_decay * parameters[i]
        velocity[i] = momentum * velocity[i] + g
        parameters[i] -= lr * (g + momentum * velocity[i] if nesterov else velocity[i])
