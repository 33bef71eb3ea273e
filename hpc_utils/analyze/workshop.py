"""The table that a scaling workshop asks people to fill in, from their runs; what is missing is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from . import stats
from .curves import CURVE, FIXED, curves
from .points import ESTIMATES, SAME
from .scaling import BEHIND, GAIN, PLACE

RANKS = (1, 2, 4, 8, 12)  # that people are asked for
MEASURED, NOT_MEASURED, BARRED = "measured", "not measured", "barred"
COLUMNS = [*SAME, *CURVE, *PLACE, "memory", *ESTIMATES, *GAIN, *BEHIND, "state", "why"]


def rows(runs: pd.DataFrame, ranks: Sequence[int] = RANKS) -> pd.DataFrame:
    """Every strong and weak curve's points, and a row for each of `ranks` that was not measured.

    Speed-up and efficiency are against one process without a group, or where that is missing, the scheme on one rank; without
    either they are NaN.

    Columns: those of `SAME`; kind, batch, steps_per_epoch, scheme; parallel, nodes, ranks_per_node, world_size, layout,
    global_batch, batch_per_device; memory and the measures with their intervals as of `points.points`; speedup,
    efficiency and their intervals, repeats, runs, runs_one as of `scaling.efficiency`; state ("measured", "not measured"; "barred":
    more ranks than cores), why (in words, where there are no numbers).
    """
    found = curves(runs.assign(oversubscribed=False))
    crowded = runs.oversubscribed.fillna(False).to_numpy(dtype=bool)
    barred = np.array([bool(crowded[at].any()) for at in found["at"]], dtype=bool)
    found["state"], found["why"] = np.where(barred, BARRED, MEASURED), np.where(barred, "more ranks than cores", "")
    found = found.join(_first(found[~barred]), on="curve")
    found[GAIN[:6]] = _gains(found)  # of barred points too, which are then forgotten
    found.loc[barred, [*ESTIMATES, *GAIN]] = np.nan
    missing = pd.DataFrame(_missing(found, ranks), columns=[*COLUMNS, "curve"])
    every = pd.concat([found, missing.astype({"world_size": int})]) if len(missing) else found
    every["alone"] = every.parallel != "none"
    return every.sort_values(["curve", "world_size", "alone", "nodes"], ignore_index=True)[COLUMNS]


def _first(found: pd.DataFrame) -> pd.DataFrame:
    """Each curve's step times on one rank, and how: without a group where measured, else with the curve's scheme."""
    one = found[found.world_size == 1]
    one = one.sort_values("parallel", key=lambda names: names != "none").drop_duplicates("curve")
    return one.set_index("curve")[["step_seconds_each", "parallel", "runs"]].set_axis(
        ["step_seconds_one", "first", "runs_one"], axis=1
    )


def _gains(found: pd.DataFrame) -> np.ndarray:
    """(points, 6): speed-up and efficiency with their intervals."""
    gain = np.full((len(found), 3), np.nan)
    some = found.step_seconds_one.notna().to_numpy()
    known = found[some]
    gain[some] = stats.ratios(known.step_seconds_one.tolist(), known.step_seconds_each.tolist())[:, :3]
    gain[(found.world_size == 1) & (found.parallel == found["first"]), 1:] = np.nan  # itself: one by definition
    ranks, strong = found.world_size.to_numpy(dtype=float)[:, None], (found.kind == "strong").to_numpy()[:, None]
    return np.hstack([np.where(strong, gain, gain * ranks), np.where(strong, gain / ranks, gain)])


def _missing(found: pd.DataFrame, ranks: Sequence[int]) -> Iterator[dict]:
    measured = found.groupby("curve").world_size.agg(set)
    for shared in found.drop_duplicates("curve")[[*SAME, *CURVE, "curve"]].to_dict("records"):
        for world in sorted(set(ranks) - measured[shared["curve"]]):
            divides = shared["kind"] == "weak" or shared["batch"] % world == 0
            batch = {FIXED[shared["kind"]]: shared["batch"]}
            if shared["kind"] == "weak":
                batch["global_batch"] = shared["batch"] * world
            elif divides:
                batch["batch_per_device"] = shared["batch"] // world
            why = "" if divides else f"{shared['batch']} samples do not divide over {world} ranks"
            yield shared | batch | {"world_size": world, "state": NOT_MEASURED, "why": why}
