"""Steps replayed at sizes that cannot be run here: every rank draws its time from what was measured, all wait for the last.

The all-reduce at a step's end makes a barrier of every step: no rank runs ahead, none catches up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from hpc_utils import records

from .perfmodel import Fitted

STEPS = 300
RUNS = 20  # that these are parts of: what stays through a run is drawn anew for each
FEWEST = 30  # measured steps that a distribution is worth drawing from


@dataclass(frozen=True)
class Noise:
    """How ranks that do the same work differ, as factors of the median.

    Attributes:
        steps: of single steps. ranks: of whole runs: what stays through a run, a slower node or a hotter chip. Of repeats
        on one device it is that device's drift, which stands for the differences between devices.
    """

    steps: np.ndarray
    ranks: np.ndarray

    @classmethod
    def measured(cls, runs: Iterable[Path]) -> Noise:
        """From the step times of runs without a group (folders) that measured the same: nobody made those wait.

        Raises:
            ValueError: fewer than 30 steps.
        """
        frames = [records.load_run(Path(run))["steps"] for run in runs]
        steps = [(frame.seconds / frame.seconds.median()).to_numpy() for frame in frames]
        count = sum(map(len, steps))
        if count < FEWEST:
            raise ValueError(f"{count} steps were measured: at least {FEWEST} are needed to draw from")
        medians = np.array([frame.seconds.median() for frame in frames])
        return cls(np.concatenate(steps), medians / np.median(medians))


def replay(
    fitted: Fitted, grid: pd.DataFrame, noise: Noise, *, slow: float = 1.0, steps: int = STEPS, seed: int = 0
) -> pd.DataFrame:
    """`fitted`'s steps at the points of `grid` (columns `perfmodel.POINT`), with ranks that differ as `noise` says.

    Args:
        slow: by how much longer one rank computes (1.1: ten percent), in every step.

    Returns:
        `grid` with seconds (mean of a step), p05, p50, p95 (of its distribution), ideal (every rank at the median),
        waiting (share of the step that ranks spend waiting for the slowest, mean over ranks).
    """
    generator = np.random.default_rng(seed)
    rows = []
    for row in grid.itertuples():
        parts = fitted.step(row)
        own = parts.data + parts.compute
        rest = parts.host + parts.latency + parts.bandwidth
        lasting = np.repeat(generator.choice(noise.ranks, (RUNS, row.world_size)), steps // RUNS, axis=0)
        factors = generator.choice(noise.steps, lasting.shape) * lasting
        factors[:, 0] *= slow
        slowest = factors.max(axis=1)
        times = own * slowest + rest
        low, middle, high = np.quantile(times, [0.05, 0.5, 0.95])
        rows.append(
            {
                "seconds": times.mean(), "p05": low, "p50": middle, "p95": high, "ideal": own + rest,
                "waiting": float(np.mean(own * (slowest - factors.mean(axis=1)) / times)),
            }
        )  # fmt: skip
    return grid.assign(**pd.DataFrame(rows, index=grid.index))


def one_slow_rank(fitted: Fitted, grid: pd.DataFrame, noise: Noise, slows: Iterable[float]) -> pd.DataFrame:
    """How much longer a step is for one rank that is slower: `replay`'s rows for each of `slows`, with slow, and longer
    (its mean step over that of the same ranks without)."""
    base = replay(fitted, grid, noise)
    frames = [replay(fitted, grid, noise, slow=slow).assign(slow=slow) for slow in slows]
    return pd.concat([frame.assign(longer=frame.seconds / base.seconds) for frame in frames], ignore_index=True)


def longest(runs: pd.DataFrame) -> pd.DataFrame:
    """Of `runs` without a group, those of the batch with most steps."""
    alone = runs[runs.parallel == "none"] if len(runs) else runs
    if alone.empty:
        return alone
    steps = (alone.samples / alone.global_batch).groupby(alone.batch_per_device).sum()
    return alone[alone.batch_per_device == steps.idxmax()]
