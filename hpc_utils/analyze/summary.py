"""What a chapter rests on, in one row: runs, repeats, machines, and what they cost."""

from __future__ import annotations

import pandas as pd

from hpc_utils.records import Records

from . import cost
from .points import gather


def summary(found: Records, study: str = "") -> pd.DataFrame:
    """One row of all runs in `found`.

    Columns: study; complete (runs), refused, unfinished; and if there are runs: profiled and oversubscribed (in no scaling
    figure), restarted, ranks and nodes (the most of a run), codes and machines (how many measured), device, workloads,
    datasets, torch, first_day, last_day; configurations, fewest_repeats, most_repeats (of a configuration); wall_seconds,
    training_seconds, device_hours, core_hours, node_hours (NaN where not known of all), samples, energy_kwh (NaN: no counter), energy_counted (runs).
    """
    runs = found.runs
    row = {"study": study, "complete": len(runs), "refused": len(found.refused), "unfinished": len(found.unfinished)}
    if runs.empty:
        return pd.DataFrame([row])
    repeats, took, each = gather(runs).repeats, cost.total(runs, found.epochs), cost.per_run(runs, found.epochs, {})
    row |= {
        "profiled": int(runs.profile.notna().sum()),
        "oversubscribed": int(runs.oversubscribed.fillna(False).astype(bool).sum()),
        "restarted": int((pd.to_numeric(runs.restarts).fillna(0) > 0).sum()),
        "ranks": int(runs.world_size.max()), "nodes": int(pd.to_numeric(runs.nodes).max()),
        "codes": runs.digest.nunique(), "machines": runs.hardware_id.nunique(),
        "device": _list(runs.device_name), "workloads": _list(runs.workload), "datasets": _list(runs.dataset),
        "torch": _list(runs.torch), "first_day": str(runs.started.min())[:10], "last_day": str(runs.started.max())[:10],
        "configurations": len(repeats), "fewest_repeats": int(repeats.min()), "most_repeats": int(repeats.max()),
        "wall_seconds": took.hours * 3600, "training_seconds": each.seconds.sum(),
        "device_hours": took.device_hours, "core_hours": took.core_hours,
        "node_hours": took.node_hours if each.node_hours.notna().all() else float("nan"),
        "samples": int(each.samples.sum()),
        "energy_kwh": took.energy_kwh if took.counted else float("nan"), "energy_counted": took.counted,
    }  # fmt: skip
    return pd.DataFrame([row])


def _list(column: pd.Series) -> str:
    return ", ".join(sorted(set(column.dropna().astype(str)))) or "not known"
