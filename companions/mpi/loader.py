"""Batches of images, shuffled and augmented by OpenMP threads ahead of training.

One Python thread fills chunks of batches in a ring of three buffers, and Numba's OpenMP threads share the images of a chunk. Random
numbers have no state: they are hashes of (seed, epoch, sample), those of `train.augment`, so that an image does not depend on
the number of threads or ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numba
import numpy as np

numba.config.THREADING_LAYER = "omp"
CHUNK = 2048  # images that are handed over at once: they take longer than the hand-over
BUFFERS = 3  # one being read, two being filled
MASK = (1 << 64) - 1

Batch = tuple[np.ndarray, np.ndarray]


class Batches:
    """A rank's share of the global batches.

    An epoch is a permutation by (seed, epoch), cut into global batches; the rest is dropped.

    Args:
        images: uint8 (n, h, w, c), a memory map for example. labels: int64 (n,).
        batch: images of a global batch, divisible by `world_size`. threads: of OpenMP.
        shift: largest shift in both directions, in pixels, filled with zeros. flip: mirror half of the images.
        mean, std: of each channel, for pixels in [0, 1].
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        *,
        batch: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        threads: int = 1,
        shift: int = 0,
        flip: bool = False,
        mean: Sequence[float],
        std: Sequence[float],
    ) -> None:
        if batch % world_size or shift >= min(images.shape[1:3]):
            raise ValueError(
                f"expected a multiple of {world_size} as batch, found {batch}, and a shift within the image, found {shift}"
            )
        self.images, self.labels, self.seed = images, labels, seed
        self.batch, self.share, self.rank, self.world_size = batch, batch // world_size, rank, world_size
        self.shift, self.flip = shift, flip
        mean, std, pixels = np.array(mean), np.array(std), images[0, ..., 0].size
        self.scales = np.tile(1 / (255 * std), pixels).astype(np.float32)
        self.offsets = np.tile(-mean / std, pixels).astype(np.float32)
        size = max(1, CHUNK // self.share) * self.share
        self.buffers = [np.empty((size, *images.shape[1:]), np.float32) for _ in range(BUFFERS)]
        self.thread = ThreadPoolExecutor(1, initializer=numba.set_num_threads, initargs=(threads,))

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.labels) // self.batch

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.labels))
        shares = order[: len(self) * self.batch].reshape(-1, self.world_size, self.share)
        return self.of(shares[:, self.rank].ravel(), epoch)

    def of(self, order: np.ndarray, epoch: int) -> Iterator[Batch]:
        """Yield x (n, h, w, c) float32 and y (n,) of the samples `order`, a batch a step; x is valid until the next step."""
        keys = hash_keys(self.seed, epoch)
        size = len(self.buffers[0])
        filling: deque[Future] = deque()
        for number, start in enumerate(range(0, len(order), size)):
            chunk = order[start : start + size]
            filling.append(self.thread.submit(self._fill, chunk, keys, self.buffers[number % BUFFERS]))
            if len(filling) == BUFFERS:
                yield from self._batches(*filling.popleft().result())
        for future in filling:
            yield from self._batches(*future.result())

    def _fill(self, chunk: np.ndarray, keys: np.ndarray, buffer: np.ndarray) -> Batch:
        augment(self.images, chunk, keys, self.shift, self.flip, self.scales, self.offsets, buffer)
        return buffer[: len(chunk)], self.labels[chunk]

    def _batches(self, x: np.ndarray, y: np.ndarray) -> Iterator[Batch]:
        for start in range(0, len(y), self.share):
            yield x[start : start + self.share], y[start : start + self.share]


@numba.njit(parallel=True, nogil=True, cache=True)
def augment(pixels, order, keys, shift, flip, scales, offsets, out):
    """Shifted, mirrored and normalised images `order` of pixels (n, h, w, c) -> out (len(order), h, w, c)."""
    for i in numba.prange(len(order)):
        sample = order[i]
        down = drawn(keys[0], sample, 2 * shift + 1) - shift
        right = drawn(keys[1], sample, 2 * shift + 1) - shift
        mirrored = flip and drawn(keys[2], sample, 2) == 1
        place(pixels[sample], down, right, mirrored, scales, offsets, out[i])


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def place(image, down, right, mirrored, scales, offsets, out):
    """One image; pixels from outside are zero. `scales` and `offsets` (h * w * c,) are those of an image."""
    height, width, channels = image.shape
    length = width * channels
    flat, move = out.reshape(-1), (down * width + right) * channels
    # The image is moved as one row, then the columns that came from a neighbouring row are overwritten.
    first = max(0, -down * length, -move)
    count = min(flat.size, flat.size - down * length, flat.size - move) - first
    for j in range(first):
        flat[j] = offsets[j]
    for j in range(first + count, flat.size):
        flat[j] = offsets[j]
    source, inside = image.reshape(-1)[first + move :], flat[first:]
    scale, offset = scales[first:], offsets[first:]
    for j in range(count):  # from 0: Numba then knows that no index is negative, and the loop is vectorised
        inside[j] = source[j] * scale[j] + offset[j]
    for y in range(height):
        row, offset = flat[y * length : (y + 1) * length], offsets[:length]
        for j in range(-right * channels):
            row[j] = offset[j]
        for j in range(right * channels):
            row[length - 1 - j] = offset[length - 1 - j]
        if mirrored:
            for x in range(width // 2):
                for c in range(channels):
                    here, there = x * channels + c, length - channels - x * channels + c
                    row[here], row[there] = row[there], row[here]


@numba.njit(nogil=True, cache=True)
def drawn(key, sample, high):
    """A uniform integer in [0, high) of (key, sample): `train.augment.integers`, the finaliser of SplitMix64."""
    state = np.uint64(sample) * np.uint64(1_000_003) + key
    state = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ state >> np.uint64(30)) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return np.int64((state >> np.uint64(33)) % np.uint64(high))


def hash_keys(seed: int, epoch: int) -> np.ndarray:
    """Keys of the shift down, the shift right and the mirror in this epoch: uint64 (3,)."""
    key = _mixed(_mixed(seed * 0x9E3779B97F4A7C15 + 1) ^ (epoch * 0xD1B54A32D192ED03 + 7)) >> 1
    return np.array([key ^ _mixed(stream + 1) >> 1 for stream in range(3)], np.uint64)


def _mixed(value: int) -> int:
    value &= MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK
    return value ^ value >> 31
