"""What planned studies will take, as one table, and what is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from . import budget, peak_rate

COLUMNS = ["study", "runs", "nodes", "devices", *(f"{name}{end}" for name in ("node_hours", "device_hours") for end in ("", "_low", "_high")),
           "hours", "hours_low", "hours_high", "cost", "cost_low", "cost_high", "unit", "basis"]  # fmt: skip
LEADING = 2  # digits of what is asked for: more would feign to know


def once(points: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[Mapping[str, Any]]]:
    """{study: its points} (as of `launch.study.forecast`) without the runs that a study before it has measured already."""
    seen: set[str] = set()
    found = {}
    for study, own in points.items():
        found[study] = [one for one in own if one["run_id"] not in seen]
        seen |= {one["run_id"] for one in own}
    return found


def studies(estimates: Mapping[str, pd.DataFrame], prices: Mapping[str, budget.Billing]) -> pd.DataFrame:
    """One row a study, and the last, "Total", of all together; `estimates` as of `budget.estimate`, by study.

    Columns: study; runs; nodes, devices: of the largest layout; node_hours, device_hours, hours (of one run, the mean), cost
    (in `unit`), each with <name>_low and <name>_high; basis.
    """
    together = pd.concat(estimates.values(), ignore_index=True)
    rows = []
    for study, own in [*estimates.items(), ("Total", together)]:
        total = budget.total(own, prices)
        row = {"study": study, "nodes": int(own.nodes.max()), "devices": int(own.world_size.max())} | total
        row |= {f"hours{end}": total[f"hours{end}"] / total["runs"] for end in ("", "_low", "_high")}
        rows.append(row | {"basis": ", ".join(name for name in budget.BASES if name in set(own.basis))})
    return pd.DataFrame(rows)[COLUMNS]


def evidence(runs: pd.DataFrame, workloads: Iterable[str]) -> list[str]:
    """Ids of the runs of these workloads that counted their operations: what a prediction from a peak rate rests on."""
    if "flops_per_sample" not in runs:
        return []
    return runs.run_id[runs.flops_per_sample.notna() & runs.workload.isin(set(workloads))].tolist()


def request(table: pd.DataFrame, where: str, *, contingency: float, like: str) -> pd.DataFrame:
    """What is asked for, in one row; `table`: as of `studies`.

    Columns: machine; like (the GPU whose peak rate stands in for the machine's), attained (the share of that rate that a step is allowed,
    with _low and _high); contingency; request_node_hours and cost (in `unit`): the upper end of what is predicted and the contingency on it,
    rounded up.
    """
    total = table[table.study == "Total"].iloc[0]
    expected, low, high = peak_rate.ATTAINED
    row = {"machine": where, "like": like, "attained": expected, "attained_low": low, "attained_high": high}
    row |= {"contingency": contingency, "request_node_hours": _up(total.node_hours_high * (1 + contingency))}
    if total.unit:
        row |= {"cost": _up(total.cost_high * (1 + contingency)), "unit": total.unit}
    return pd.DataFrame([row])


def _up(amount: float) -> float:
    """Rounded up to `LEADING` digits."""
    step = 10.0 ** (math.floor(math.log10(amount)) - LEADING + 1) if amount > 0 else 1.0
    return math.ceil(round(amount / step, 9)) * step
