"""Tree models on the threads of one process: speed, learning and memory by threads, the cores at work, and what a GPU must reach."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from hpc_utils.analyze import cost, points, stats
from hpc_utils.analyze.compare import compare, scaled
from hpc_utils.analyze.profiles.profiled_runs import read_monitor
from hpc_utils.analyze.table import tabled
from hpc_utils.records.load import load_run

MEASURES = [
    "throughput",
    "step_seconds",
    "peak_bytes",
    "busy_cores",
    "outside",
    "test_auc",
    "test_accuracy",
    "test_loss",
]
PLACE = ["library", "device", "device_name", "hardware_id", "threads", "global_batch"]
COLUMNS = [*PLACE, "cores", *stats.columns(*MEASURES, "speedup", "efficiency"), "repeats", "runs"]
WORKLOADS = r".*\btrees(\.boosting)?:(?=XGBoost$|LightGBM$)"  # the module of the workloads
RATIOS = (1, 2, 4, 8, 16)  # price of a GPU node's hour over a CPU node's


def measure(results: Path, runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """The runs of tree models on cores that they had for themselves, without a profiler.

    Added: library; threads; cores (the logical CPUs that the run was pinned to); busy_cores (cores at work, the mean over T); outside (of its
    cores' time, the share that was not its own); test_auc (NaN: not two classes), test_accuracy and test_loss, the last.
    """
    tree_runs = runs[runs.workload.str.match(WORKLOADS)]
    tree_runs = points.unprofiled(tree_runs[~points.barred(tree_runs)])
    last = epochs.sort_values("epoch").groupby("run_id").last().reindex(columns=MEASURES[-3:])
    cpu = pd.to_numeric(tree_runs.cpu_seconds)
    threads = pd.to_numeric(tree_runs.threads_per_rank)
    pinned = [load_run(results / "runs" / run)["ranks"].cores.iloc[0] for run in tree_runs.run_id]
    return tree_runs.drop(columns="test_accuracy").join(last, on="run_id").assign(
        library=tree_runs.workload.str.replace(WORKLOADS, "", regex=True), threads=threads, cores=pinned,
        busy_cores=cpu / tree_runs.seconds, outside=points.outside_load(tree_runs, threads),
    )  # fmt: skip


@tabled(
    "threads",
    "Speed, learning and memory by threads.",
    "library device_name threads step_seconds throughput speedup efficiency repeats",
    measure="throughput",
    missing="`hpc study run trees`",
)
def by_threads(measured: pd.DataFrame) -> pd.DataFrame:
    """A row for each configuration of `measure`, by library, device and threads.

    Columns: `PLACE`, cores; each of `MEASURES`, speedup and efficiency (over one thread, all else equal) with <column>_low and
    <column>_high (95 %); repeats; runs.
    """
    configurations = points.gather(measured, MEASURES, ["library", "threads", "cores"])
    alike = [name for name in (*points.SAME, *points.POINT) if name != "threads_per_rank"]
    single = configurations[configurations.threads == 1]
    gained = compare(configurations, single, alike, over={"speedup": "throughput"})
    gained = scaled(gained, "efficiency", "speedup", 1 / gained.threads.astype(float))
    return gained[COLUMNS].sort_values(["library", "device", "threads"], ignore_index=True)


@tabled(
    "at-work",
    "Cores at work over a run.",
)
def at_work(results: Path, measured: pd.DataFrame) -> pd.DataFrame:
    """By the monitor, the cores at work in the first repeat of each configuration on a CPU: library, threads, run_id, elapsed (s),
    at_work, resident memory (`memory_bytes`)."""
    first = measured[measured.device == "cpu"].sort_values("repeat").drop_duplicates([*PLACE])
    parts = []
    for run in first.sort_values("threads").itertuples():
        log = read_monitor(results, run.run_id)
        samples = log[log.device == "rank0"]
        values = {
            "elapsed": samples.time - samples.time.min(),
            "at_work": samples.utilization_percent / 100,
            "memory_bytes": samples.rss_bytes,
        }
        parts.append(pd.DataFrame({"library": run.library, "threads": run.threads, "run_id": run.run_id} | values))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


@tabled(
    "learning",
    "Held-out rows, after every epoch.",
)
def learning(measured: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Every evaluation of each library's configuration of most threads: library, threads, run_id, epoch, elapsed (T so far, s), test_auc
    and test_accuracy."""
    most = measured[measured.threads == measured.groupby(["library", "device"]).threads.transform("max")]
    evaluations = epochs.merge(most[["run_id", "library", "threads"]], on="run_id").sort_values(["run_id", "epoch"])
    evaluations["elapsed"] = evaluations.groupby("run_id").seconds.cumsum()
    columns = ["library", "threads", "run_id", "epoch", "elapsed", "test_auc", "test_accuracy"]
    return evaluations.reindex(columns=columns)


@tabled(
    "cost",
    "What equal work takes.",
    "library device_name threads seconds wall_seconds core_hours node_hours cost",
    measure="cost",
    missing="`hpc study run trees`",
)
def spent(measured: pd.DataFrame, epochs: pd.DataFrame, prices: Mapping[str, cost.Billing]) -> pd.DataFrame:
    """`cost.to_finish` of the configurations, with library and threads."""
    names = measured[["workload", "library"]].drop_duplicates()
    costs = cost.to_finish(measured, epochs, prices).merge(names, on="workload")
    return costs.assign(threads=costs.threads_per_rank).sort_values(["library", "threads"], ignore_index=True)


@tabled(
    "break-even",
    "What a GPU must reach.",
    missing="`hpc study run trees`",
)
def break_even(costs: pd.DataFrame) -> pd.DataFrame:
    """What a GPU must reach: for each library's quickest configuration on a CPU, and each ratio of the prices of an hour of both
    nodes, the time in which the GPU would cost as much.

    Columns: library, threads, seconds (on the CPU, all of the run), price_ratio, may_take (s), gpu_seconds (NaN: not
    measured), better ("CPU", "GPU" or "not measured"), runs.
    """
    on_gpu = costs[costs.device != "cpu"].sort_values("wall_seconds").drop_duplicates("library").set_index("library")
    rows = []
    for row in costs[costs.device == "cpu"].sort_values("wall_seconds").drop_duplicates("library").itertuples():
        gpu_seconds = on_gpu.wall_seconds.get(row.library, float("nan"))
        for ratio in RATIOS:
            may_take = row.wall_seconds / ratio
            better = "not measured" if gpu_seconds != gpu_seconds else "GPU" if gpu_seconds < may_take else "CPU"
            rows.append((row.library, row.threads, row.wall_seconds, ratio, may_take, gpu_seconds, better, row.runs))
    names = ["library", "threads", "seconds", "price_ratio", "may_take", "gpu_seconds", "better", "runs"]
    return pd.DataFrame(rows, columns=names)
