"""Steps replayed with ranks that differ as measured: every rank draws its time, and all wait for the slowest.

The all-reduce at a step's end is a barrier: no rank runs ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from hpc_utils import records

from ..points import one_rank
from .fit import Fitted

STEPS = 300
RUNS = 20  # the steps are parts of so many runs, each with its own lasting differences between ranks
FEWEST = 30  # measured steps that make a distribution


@dataclass(frozen=True)
class Noise:
    """How ranks with equal work differ, as factors of the median.

    Attributes:
        steps: of single steps. ranks: of whole runs, such as a slower node. From repeats on one device this is that
            device's drift, which stands for the differences between devices.
    """

    steps: np.ndarray
    ranks: np.ndarray

    @classmethod
    def measured(cls, runs: Iterable[Path]) -> Noise:
        """From the step times of runs (folders) of one configuration without a process group; empty with fewer than 30."""
        steps = [records.load_run(Path(run))["steps"].seconds for run in runs]
        if sum(map(len, steps)) < FEWEST:
            return cls(np.array([]), np.array([]))
        medians = np.array([seconds.median() for seconds in steps])
        return cls(np.concatenate([own / own.median() for own in steps]), medians / np.median(medians))


def replay(fitted: Fitted, grid: pd.DataFrame, noise: Noise, *, slow: float = 1.0, seed: int = 0) -> pd.DataFrame:
    """`fitted`'s steps at the points of `grid` (columns `fit.POINT`), with ranks that differ as `noise`.

    Args:
        slow: factor by which one rank computes longer (1.1: ten percent), in every step.

    Returns:
        `grid` with seconds (mean of a step), p05, p50, p95 (of its distribution), ideal (every rank at the median),
        waiting (share of the step that ranks wait for the slowest, mean over ranks). Empty if `noise` is.
    """
    grid = grid if len(noise.steps) else grid[:0]
    generator = np.random.default_rng(seed)
    rows = []
    for row in grid.itertuples():
        parts = fitted.step(row)
        own = parts.data + parts.compute
        rest = parts.host + parts.latency + parts.bandwidth
        lasting = np.repeat(generator.choice(noise.ranks, (RUNS, row.world_size)), STEPS // RUNS, axis=0)
        factors = generator.choice(noise.steps, lasting.shape) * lasting
        factors[:, 0] *= slow
        slowest = factors.max(axis=1)
        times = own * slowest + rest
        waiting = float(np.mean(own * (slowest - factors.mean(axis=1)) / times))
        rows.append([times.mean(), *np.quantile(times, [0.05, 0.5, 0.95]), own + rest, waiting])
    names = ["seconds", "p05", "p50", "p95", "ideal", "waiting"]
    return grid.assign(**pd.DataFrame(rows, index=grid.index, columns=names))


def one_slow_rank(fitted: Fitted, grid: pd.DataFrame, noise: Noise, slows: Iterable[float]) -> pd.DataFrame:
    """`replay`'s rows for each factor of `slows`, with slow, and longer: the mean step over that without a slow rank."""
    base = replay(fitted, grid, noise)
    frames = [replay(fitted, grid, noise, slow=slow).assign(slow=slow) for slow in slows]
    return pd.concat([frame.assign(longer=frame.seconds / base.seconds) for frame in frames], ignore_index=True)


def longest(runs: pd.DataFrame) -> pd.DataFrame:
    """Of the runs on one rank (`one_rank`) those of the batch with most steps."""
    if runs.empty:
        return runs
    alone = one_rank(runs)
    steps = (alone.samples / alone.global_batch).groupby(alone.batch_per_device).sum()
    return alone[alone.batch_per_device == steps.idxmax()] if len(alone) else alone
