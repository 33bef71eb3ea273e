"""The ceiling of strong scaling: the efficiency that computing alone allows, from a compute profile.

N devices divide a global batch B, so each computes B / N samples a step. Small batches fill a device badly. Without any
communication the efficiency is E_max(N) = T(B) / (N T(B / N)), with T measured on one device (`hpc bench compute`). Between two
measured batches log T is linear in log B; beyond them nothing is assumed.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpc_utils.records.compute_profile import computed_in, fits, step_seconds
from hpc_utils.records.identity import PLANNED, changed, task
from hpc_utils.records.study import Targets

from . import stats
from .stats import Estimate
from .table import tabled

if TYPE_CHECKING:  # `hpc study plan` does without pandas
    import pandas as pd

Row = Mapping[str, Any]
Times = Mapping[int, Sequence[float]]  # {batch: seconds of each repeat}

CANDIDATES = 100  # batches that `smallest_batch` tries
PARTS = ("ceiling", "small_batches", "communication")


class NotMeasured(LookupError):
    """The batch is smaller, or larger, than all of the profile."""


def step(times: Times, batch: float) -> np.ndarray:
    """Seconds of a step of `batch` samples in each repeat.

    Raises:
        NotMeasured: the batch is outside the measured range.
    """
    batches = sorted(times)
    if batch < batches[0]:
        raise NotMeasured(f"not measured below {batches[0]}")
    if batch > batches[-1]:
        raise NotMeasured(f"not measured above {batches[-1]}")
    repeats = np.log([times[size] for size in batches]).T
    return np.exp([np.interp(np.log(batch), np.log(batches), logs) for logs in repeats])


def efficiency(times: Times, batch: float, ranks: int) -> Estimate:
    """E_max of a global `batch` on `ranks` devices.

    Raises:
        NotMeasured: as `step`, of the global batch or a device's.
    """
    return stats.ratio(step(times, batch), step(times, batch / ranks)).times(1 / ranks)


def smallest_batch(times: Times, ranks: int, target: float) -> Estimate:
    """The smallest batch of a device at which E_max on `ranks` devices is at least `target`; infinite if none of the profile.

    The ends are the smallest batches at which the upper and the lower end of E_max's interval are. A hundred batches of the
    measured range are tried.

    Raises:
        NotMeasured: no batch was measured both for one device and for all of them.
    """
    least = min(times)
    most = max(times) // ranks
    batches = np.unique(np.geomspace(least, most, CANDIDATES).round())
    tried = np.array([efficiency(times, ranks * batch, ranks) for batch in batches])
    reached = tried[:, [0, 2, 1]] >= target  # value, high, low
    ends = np.where(reached.any(axis=0), batches[reached.argmax(axis=0)], np.inf)
    return Estimate(*np.where(np.isnan(tried[0, [0, 2, 1]]), np.nan, ends), int(tried[0, 3]))


def planned(points: Iterable[Row], profiles: Iterable[Row], targets: Targets) -> Iterator[tuple[str, bool]]:
    """The ceiling of each strong curve of a plan that a profile fits: a line, and whether it allows the target.

    It is of the target's number of ranks, or if the plan does not have that, of the most.

    Args:
        points: as of `launch.study.forecast`. profiles: the first that fits a curve is taken.
    """
    profiles = list(profiles)
    for curve in _planned_curves(points):
        point = curve.get(targets.strong_ranks, curve[max(curve)])
        profile = next((profile for profile in profiles if fits(profile, point)), None)
        if profile:
            yield _ceiling(point, profile, targets)


def planned_command(points: Iterable[Row]) -> str:
    """What measures the ceiling of the first strong curve of a plan; empty if it has none."""
    curve = next(_planned_curves(points), None)
    if curve is None:
        return ""
    point = curve[max(curve)]
    return _bench(point, {point["global_batch"] / ranks for ranks in (1, *curve)})


def _planned_curves(points: Iterable[Row]) -> Iterator[dict[int, Row]]:
    """{ranks: point} of each strong curve of a plan."""
    curves = defaultdict(dict)
    for point in points:
        curve = tuple(point[name] for name in (*PLANNED, "threads_per_rank", "global_batch"))
        curves[curve][point["world_size"]] = point
    return (curve for curve in curves.values() if len(curve) > 1)


def _ceiling(point: Row, profile: Row, targets: Targets) -> tuple[str, bool]:
    times = step_seconds(profile)
    ranks = point["world_size"]
    batch = point["global_batch"]
    target = targets.strong_efficiency if ranks == targets.strong_ranks else 0.0
    devices = f"{ranks} {point['device_name'].upper() or 'devices'}"
    line = f"{task(point)}, {point['precision']} (compute profile {profile['name']}): {batch} samples on {devices}: "
    try:
        most = efficiency(times, batch, ranks)
    except NotMeasured as why:
        return f"{line}{why} samples", True
    line += f"efficiency at most {_shown(most, '.0%')}"
    if most.value < target:
        least = smallest_batch(times, ranks, target)
        if np.isfinite(least.value):
            line += f"; {target:.0%} needs at least {_shown(least, '.0f')} samples a device"
        else:
            line += f"; {target:.0%} needs more than the measured {max(times) // ranks} samples a device"
    return line, not max(most.value, most.high) < target


@tabled(
    "ceiling",
    "The ceiling of strong scaling, and what small batches, and communication and waiting, lose.",
    "batch precision link_gbit world_size efficiency ceiling small_batches communication missing",
    measure="efficiency",
)
def losses(curves: pd.DataFrame, profiles: Iterable[Row]) -> pd.DataFrame:
    """What strong scaling loses, split by the ceiling: of each point, against one process without a group, that a profile fits.

    Args:
        curves: as of `scaling.efficiency`. profiles: the first that fits a point is taken.

    Columns: those of `scaling.LINE` and `PLACE`; efficiency, ceiling (E_max), small_batches (1 - E_max), communication
    (E_max - E: communication and waiting), each with `<name>_low` and `<name>_high`; missing (why there is no ceiling); profile
    (its name); repeats, runs, runs_base.
    """
    import pandas as pd

    from .scaling import BEHIND, LINE, PLACE

    profiles = list(profiles)
    rows = []
    for point in _strong(curves).to_dict("records"):
        profile = next((profile for profile in profiles if fits(profile, point)), None)
        if profile:
            rows.append(point | {"profile": profile["name"]} | _split(point, step_seconds(profile)))
    measured = [*stats.columns("efficiency", *PARTS), "missing", "profile", "repeats"]
    return pd.DataFrame(rows, columns=[*LINE, *PLACE, *measured, *BEHIND])


def _split(point: Row, times: Times) -> dict[str, Any]:
    try:
        most = efficiency(times, point["global_batch"], point["world_size"])
    except NotMeasured as why:
        return {"missing": str(why)}
    measured = Estimate.of(point, "efficiency")
    small = Estimate(1 - most.value, 1 - most.high, 1 - most.low, most.repeats)
    parts = most.columns("ceiling") | small.columns("small_batches")
    return parts | stats.difference(most, measured).columns("communication") | {"missing": ""}


def command(curves: pd.DataFrame) -> str:
    """What measures the ceiling of the first strong curve of `curves` (as of `scaling.efficiency`)."""
    strong = _strong(curves)
    if strong.empty:
        return "runs of a global batch in one process without a group and on several ranks"
    point = strong.iloc[0]
    batches = {point.global_batch, *strong.batch_per_device[strong.batch == point.batch]}
    return _bench(point, batches)


def _bench(point: Row, batches: Iterable[float]) -> str:
    """The command that measures a step of `point` at these batches."""
    options = changed(computed_in(point))
    if point["device"] == "cpu":
        threads = point["threads_per_rank"]
        options |= {"device": "cpu", "cores_per_rank" if threads < 1 else "threads_per_rank": f"{threads:g}"}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    given = [["-p", f"{name}={text}"] for name, text in texts.items() if text and name != "source"]
    arguments = shlex.join(itertools.chain(*given))
    return f"`hpc bench compute {arguments} --batches {','.join(f'{batch:.0f}' for batch in sorted(batches))}`"


def _strong(curves: pd.DataFrame) -> pd.DataFrame:
    return curves[(curves.kind == "strong") & (curves.baseline == "none") & (curves.world_size > 1)]


def _shown(estimate: Estimate, form: str) -> str:
    interval = "" if np.isnan(estimate.low) else f" [{estimate.low:{form}}, {estimate.high:{form}}]"
    return f"{estimate.value:{form}}{interval}"
