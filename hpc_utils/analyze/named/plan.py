"""What planned studies will take, as named values: `plan.node-hours`, `plan.strong.device-hours`, `plan.request.node-hours`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from hpc_utils.analyze import budget, peak_rate
from hpc_utils.analyze.value import Value

# Of a total: name, column of `budget.total`, unit, what it is.
QUANTITIES = (
    ("node-hours", "node_hours", "node-hours", "Hours of whole nodes, however few of their devices are used"),
    ("device-hours", "device_hours", "device-hours", "Hours of devices in use"),
)
COLUMNS = ["study", "runs", "nodes", "devices", *(f"{name}{end}" for _, name, *_ in QUANTITIES for end in ("", "_low", "_high")),
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


def values(
    table: pd.DataFrame, where: str, *, contingency: float, like: str = "", runs: Iterable[str] = ()
) -> list[Value]:
    """`plan.machine`, `plan.runs`, `plan.nodes`, `plan.devices`, `plan.node-hours`, `plan.device-hours`, `plan.cost`; each again for every study,
    `plan.<study>.runs` and so on; `plan.contingency`, `plan.request.node-hours` and, as the site bills it, `plan.request.cost`:
    the upper end and the contingency upon it, rounded up. With `like`: `plan.like`, and `plan.attained`, the share of its peak that a step is allowed.

    Args:
        table: as of `studies`. where: the machine in words. like: the GPU whose peak rate stands in for the machine's. runs: ids
            of the runs that the prediction rests on.
    """
    evidence = tuple(runs)
    found = [Value("plan.machine", where, "text", "The machine that the studies are planned for.")]
    if like:
        expected, low, high = peak_rate.ATTAINED
        allowed = "Of a GPU's peak rate that a step is allowed where nothing was measured."
        found += [
            Value("plan.like", like, "text", "The GPU whose peak rate stands in for that of the machine's."),
            Value("plan.attained", expected, "share", allowed, low, high, span="allowance"),
        ]
    for row in table.to_dict("records"):
        all_of_them = row["study"] == "Total"
        stem = "plan" if all_of_them else f"plan.{row['study']}"
        whom = "all planned studies" if all_of_them else f"the planned study {row['study']}"
        for name, what in (
            ("runs", "Runs"),
            ("nodes", "Nodes of the largest job"),
            ("devices", "Devices of the largest job"),
        ):
            found.append(Value(f"{stem}.{name}", int(row[name]), "count", f"{what} of {whom} on {where}."))
        for name, column, unit, what in QUANTITIES:
            found.append(
                _predicted(f"{stem}.{name}", row, column, unit, f"{what}, predicted for {whom} on {where}.", evidence)
            )
        if row["unit"]:
            says = f"What the site bills, predicted for {whom} on {where}."
            found.append(_predicted(f"{stem}.cost", row, "cost", row["unit"], says, evidence))
        if all_of_them:
            asked = _up(row["node_hours_high"] * (1 + contingency))
            says = f"Node-hours asked for on {where}: the upper end of what is predicted, and a contingency upon it."
            found += [
                Value("plan.contingency", contingency, "share", "Asked for above the upper end: runs that fail, and development."),
                Value("plan.request.node-hours", asked, "node-hours", says, runs=evidence),
            ]  # fmt: skip
            if row["unit"]:
                billed = _up(row["cost_high"] * (1 + contingency))
                says = f"The request on {where} as the site bills it: the upper end of what is predicted, and a contingency upon it."
                found.append(Value("plan.request.cost", billed, row["unit"], says, runs=evidence))
    return found


def _predicted(name: str, row: Mapping[str, Any], column: str, unit: str, says: str, runs: tuple[str, ...]) -> Value:
    value, low, high = (float(row[f"{column}{end}"]) for end in ("", "_low", "_high"))
    return Value(name, value, unit, says, low, high, runs=runs, span="allowance")


def _up(amount: float) -> float:
    """Rounded up to `LEADING` digits."""
    step = 10.0 ** (math.floor(math.log10(amount)) - LEADING + 1) if amount > 0 else 1.0
    return math.ceil(round(amount / step, 9)) * step
