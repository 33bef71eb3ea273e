"""Which points form a curve of strong or of weak scaling, and the point of one rank that each is measured against."""

from __future__ import annotations

import pandas as pd

from hpc_utils.capability import PERIODS_OF_A_STEP

from .points import MEASURES, SAME, gather, number, undisturbed

# What tells curves apart beside `SAME`: `batch` is the fixed one, `scheme` how several ranks share the model ("ddp", ...).
CURVE = ["kind", "batch", "steps_per_epoch", "scheme"]
FIXED = {"strong": "global_batch", "weak": "batch_per_device"}


def usable(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that may stand in a scaling figure: not those with more ranks than cores, those that a profiler watched, nor
    those whose steps computed for too few periods of their share of a core."""
    cores, period, cpu = (pd.to_numeric(runs[name]) for name in ("threads_per_rank", "share_period", "cpu_seconds"))
    short = cpu / cores / (runs.samples / runs.global_batch) < PERIODS_OF_A_STEP * period
    return undisturbed(runs[~short])


def curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Strong and weak curves: `points.gather` of the usable runs, one row a point of a curve.

    Strong: fixed global batch and equal work. Weak: fixed batch per device, compared by the time of a step; equal steps an
    epoch, or (steps_per_epoch NaN) whole epochs, whose steps become fewer as ranks are added. A curve has
    points of at least two rank counts; a point may lie on one of each kind.

    Further columns: kind ("strong", "weak"), batch (the fixed one), scheme (the `parallel` of the curve's points on
    several ranks), curve (its number).
    """
    gathered = _beside_every_scheme(_beside_every_link(gather(usable(runs))))
    both = [gathered.assign(kind=kind, batch=gathered[fixed]) for kind, fixed in FIXED.items()]
    together = pd.concat(both, ignore_index=True)
    together["curve"] = number(together, [*CURVE, *SAME])
    return together[together.groupby("curve").world_size.transform("nunique") > 1].reset_index(drop=True)


def _beside_every_link(gathered: pd.DataFrame) -> pd.DataFrame:
    """What one rank took belongs to the curves of every link: it needs none."""
    alone = gathered.world_size == 1
    links = gathered.link_gbit[~alone].unique()
    return pd.concat(
        [gathered[~alone], *(gathered[alone].assign(link_gbit=link) for link in links)], ignore_index=True
    )


def _beside_every_scheme(gathered: pd.DataFrame) -> pd.DataFrame:
    """What one process without a group took belongs to the curves of every strategy."""
    alone = gathered.parallel == "none"
    grouped = gathered[~alone]
    shared = [gathered[alone].assign(scheme=scheme) for scheme in grouped.parallel.unique()]
    return pd.concat([grouped.assign(scheme=grouped.parallel), *shared], ignore_index=True)


def against_one(found: pd.DataFrame) -> pd.DataFrame:
    """The points of `curves` once for each `baseline`, whose own runs and values stand beside them: `at_one`,
    `<measure>_one`, and `runs_one`, their ids. "none" is one process without a group, the headline; a scheme's name, that scheme on one rank.

    The first point of each is the baseline itself; a curve without that baseline has none.
    """
    parts = []
    for own in (False, True):
        one = found[(found.world_size == 1) & (found.parallel == (found.scheme if own else "none"))]
        many = found[(found.world_size > 1) & (found.parallel != "none")]
        both = pd.concat([one[one.curve.isin(many.curve)], many[many.curve.isin(one.curve)]])
        beside = one.set_index("curve")[["at", "runs", *(f"{name}_each" for name in MEASURES)]]
        beside.columns = ["at_one", "runs_one", *(f"{name}_one" for name in MEASURES)]
        parts.append(both.join(beside, on="curve").assign(order=int(own)))
        parts[-1]["baseline"] = parts[-1].scheme if own else "none"
    every = pd.concat(parts)
    return every.sort_values(["curve", "order", "world_size", "nodes"], ignore_index=True).drop(columns="order")
