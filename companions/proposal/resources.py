"""What planned studies take together, and what is requested for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from hpc_utils.analyze import budget, cost
from hpc_utils.analyze.profiles import peaks
from hpc_utils.analyze.profiles.peaks import Peak
from hpc_utils.launch.cluster import NodeType

DIGITS = 2  # of a request


def similar_gpu(title: str, node: NodeType, like: str) -> Peak:
    """The peak rates of the GPU `like`, which stands for those of `node` of the cluster `title`.

    Raises:
        LookupError: the node has no GPUs, or others.
    """
    if not node.gpus:
        raise LookupError(
            f"{title} has no GPUs, of which this chapter plans: `hpc plan STUDY --throughput X` plans for CPUs"
        )
    peak = peaks.find_peak(like)
    if peak is None or node.gpu not in peak.name.lower():
        names = ", ".join(known.name for known in peaks.read_peaks())
        raise LookupError(f"like={like!r} is no {node.gpu}, which {title} has; give -p like=NAME, one of {names}")
    return peak


def once(points: Mapping[str, Sequence[budget.Point]]) -> dict[str, list[budget.Point]]:
    """{study: its points} (as of `launch.study.forecast`) without the runs that a study before it has measured already."""
    first: dict[str, str] = {}
    for study, study_points in points.items():
        for point in study_points:
            first.setdefault(point["run_id"], study)
    return {
        study: [point for point in study_points if first[point["run_id"]] == study]
        for study, study_points in points.items()
    }


def by_study(estimates: Mapping[str, pd.DataFrame], prices: Mapping[str, cost.Billing]) -> pd.DataFrame:
    """One row per study, and the last, "Total", of all together; `estimates` as of `budget.estimate`, by study.

    Columns: study; runs; nodes, devices: of the largest layout; node_hours, device_hours, hours (of one run, the mean), cost
    (in `unit`), each with <name>_low and <name>_high; unit, basis.
    """
    planned = pd.concat([rows.assign(study=study) for study, rows in estimates.items()], ignore_index=True)
    table = budget.grouped(pd.concat([planned, planned.assign(study="Total")]), ["study"], prices)
    table = table.rename(columns={"world_size": "devices"})
    return table[
        ["study", "runs", "nodes", "devices", *budget.ENDS[3:9], *budget.ENDS[:3], *budget.ENDS[9:], "unit", "basis"]
    ]


def request(studies: pd.DataFrame, machine: str, *, contingency: float, like: str) -> pd.DataFrame:
    """The requested resources in one row; `studies`: as of `by_study`.

    Columns: machine; like (the GPU whose peak rate stands for the machine's), attained (the assumed share of that rate, with
    _low and _high); contingency; request_node_hours and cost (in `unit`): the upper end of the prediction with the
    contingency, rounded up.
    """
    sums = studies[studies.study == "Total"].iloc[0]
    margin = 1 + contingency
    row = {"machine": machine, "like": like, "contingency": contingency}
    row |= dict(zip(["attained", "attained_low", "attained_high"], budget.ATTAINED, strict=True))
    row |= {"request_node_hours": round_up(sums.node_hours_high * margin)}
    row |= {"cost": round_up(sums.cost_high * margin), "unit": sums.unit} if sums.unit else {}
    return pd.DataFrame([row])


def round_up(amount: float) -> float:
    """Rounded up to `DIGITS` digits."""
    step = 10.0 ** (math.floor(math.log10(amount)) - DIGITS + 1) if amount > 0 else 1.0
    return math.ceil(round(amount / step, 9)) * step


def counted(runs: pd.DataFrame, workloads: Iterable[str]) -> list[str]:
    """Ids of the runs of these workloads that counted their operations, the evidence of `budget.from_peak_rate`."""
    return runs.run_id[runs.flops_per_sample.notna() & runs.workload.isin(set(workloads))].tolist()
