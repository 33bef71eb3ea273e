"""The ResNet-50 workshop: each run in its terms and in ours, its two tables, and what its protocol confounds.

The workshop (kaust-rccl, Dist-DL-training) reports rank 0's own loss, a throughput that counts validation time, and memory
from the first second of the job on. Ours are reduced over ranks, and over training only.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import points, stats
from hpc_utils.analyze.compare import compare, scaled
from hpc_utils.analyze.profiles.profiled_runs import read_monitor
from hpc_utils.analyze.table import tabled
from hpc_utils.plural import counted
from hpc_utils.records import packed
from hpc_utils.records.study import StudyIndex

WORKSHOP, OURS = "workshop", "ours"
LEVELS = ("peak", "mean", "mode")
# Each column of a table: the column of `measure` by the workshop's definition, and by ours.
DEFINITIONS: dict[str, dict[str, str]] = {
    WORKSHOP: {"loss": "own_loss", "accuracy": "own_accuracy", "throughput": "with_evaluation"}
    | {f"{level}_bytes": f"{level}_always" for level in LEVELS},
    OURS: {"loss": "train_loss", "accuracy": "train_accuracy", "throughput": "throughput"}
    | {f"{level}_bytes": f"{level}_training" for level in LEVELS},
}
MEASURES = [column for definition in DEFINITIONS.values() for column in definition.values()]
MEASURES += ["test_loss", "test_accuracy", "updates", "total_seconds", "utilisation", "power_watts"]
SCALING = ("throughput_scaling", "memory_scaling", "node_scaling", "node_memory_scaling")
COLUMNS = stats.columns(*DEFINITIONS[OURS], *SCALING)
LAYOUT = ["nodes", "ranks_per_node"]
CONFIGURATION = ["config", *LAYOUT, "world_size", "global_batch"]
DEVICES, NODES = (1, 2, 4, 8), (1, 2, 4, 8)  # of the first table on one node, and of the second with PER_NODE on each
PER_NODE = 2
# What to expect: (nodes, devices on each), the column of a table, the lowest and the highest value on GPUs, and on the rehearsal's shares
# of a core, which exchange gradients over sockets, and whose memory is that of the rank and its loader workers, eight instead of one.
EXPECTED = {
    "throughput on 8 devices over 1": ((1, 8), "throughput_scaling", (6.0, 8.0), (4.5, 8.0)),
    "throughput on 4 nodes x 2 devices over 1": ((4, PER_NODE), "throughput_scaling", (6.0, 8.0), (4.5, 8.0)),
    "throughput on 8 nodes x 2 devices over 1": ((8, PER_NODE), "throughput_scaling", (11.0, 16.0), (7.0, 16.0)),
    "memory of a device of 8 over one alone": ((1, 8), "memory_scaling", (0.9, 1.1), (3.0, 7.0)),
}


def measure(results: Path, runs: pd.DataFrame, epochs: pd.DataFrame, studies: Iterable[StudyIndex]) -> pd.DataFrame:
    """`runs` with what the tables hold.

    Added: series, of the studies; updates (optimizer steps); train_loss, train_accuracy, test_loss, test_accuracy (last epoch, all ranks);
    own_loss, own_accuracy (last epoch, rank 0's own samples); with_evaluation (samples/s, over training and evaluation
    time); total_seconds (set-up, warm-up, training, evaluation); of device 0, on a CPU of rank 0's processes: peak, mean
    and mode of its memory (B, in whole MiB), as <level>_training and <level>_always; utilisation, power_watts in training.
    NaN: not recorded (memory needs `monitor_seconds`).
    """
    series = {run.run_id: run.series for index in studies for run in index.runs}
    rows = [_of_run(results, run, epochs[epochs.run_id == run.run_id]) for run in runs.itertuples()]
    columns = [name for name in MEASURES if name != "throughput"]  # which `runs` has
    return runs.assign(**pd.DataFrame(rows, index=runs.index, columns=columns), series=runs.run_id.map(series))


def _of_run(results: Path, run: Any, epochs: pd.DataFrame) -> dict[str, float]:
    last = epochs.iloc[-1]
    first_rank = _ranks(results, run.run_id)[0]
    evaluation = epochs.eval_seconds.sum()
    pauses = epochs.reindex(columns=points.PAUSES).sum(axis=None)
    parts = (run.setup_seconds, run.warmup_seconds, run.seconds, evaluation, pauses)
    measures = {name: last.get(name) for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy")}
    measures |= {f"own_{name}": first_rank.get(f"train_{name}") for name in ("loss", "accuracy")}
    measures |= {"updates": epochs.steps.sum(), "total_seconds": np.nansum(parts)}
    measures |= {"with_evaluation": run.samples / (run.seconds + evaluation)}
    log, _ = _monitored(read_monitor(results, run.run_id), first_rank)
    return measures | _levels(log, epochs)


def _ranks(results: Path, run: str) -> list[dict[str, Any]]:
    return pd.read_csv(io.BytesIO(packed.content(results / "runs" / run / "ranks.csv"))).to_dict("records")


def _levels(log: pd.DataFrame, epochs: pd.DataFrame) -> dict[str, float]:
    if log.empty or epochs.ended.isna().any():
        return {}
    begun = points.training_begun(epochs)
    times = log.time.to_numpy()[:, None]
    training = log[((times >= begun.to_numpy()) & (times <= epochs.ended.to_numpy())).any(axis=1)]
    measures = {"utilisation": training.utilization_percent.mean() / 100, "power_watts": training.power_watts.mean()}
    for when, rows in (("training", training), ("always", log)):
        if len(rows):
            sizes = (rows.bytes / 2**20).round()
            values = sizes.max(), sizes.mean(), max(statistics.multimode(sizes))
            measures |= {f"{level}_{when}": value * 2**20 for level, value in zip(LEVELS, values, strict=True)}
    return measures


def _monitored(log: pd.DataFrame, rank: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The monitor's rows of a rank's device, with `bytes`, its memory, and of its processes; on a CPU these are the device."""
    log = log[log.host == rank["host"]]
    processes = log[log.device == f"rank{rank['rank']}"]
    if str(rank["device"]).startswith("cuda"):
        device = log[log.device == rank["device"]]
        return device.assign(bytes=device.memory_used_bytes), processes
    total = log[log.device == "cpu"].set_index("time").memory_total_bytes
    device = processes.assign(memory_total_bytes=processes.time.map(total), bytes=processes.rss_bytes)
    return device, processes


def logs(results: Path, run: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The memory of every device, with the columns of `nvidia-smi --query-gpu=timestamp,index,name,memory.used,memory.total`
    (MiB), and the processes of every rank, with psrecord's (MB)."""
    log = read_monitor(results, run)
    if log.empty:
        return pd.DataFrame(), pd.DataFrame()
    gpus = []
    trees = []
    for rank in _ranks(results, run):
        gpu, tree = _monitored(log, rank)
        gpus.append(pd.DataFrame({
            "timestamp": pd.to_datetime(gpu.time, unit="s").dt.round("ms"), "index": rank["local_rank"], "name": rank["device_name"],
            "memory.used [MiB]": (gpu.bytes / 2**20).round(), "memory.total [MiB]": (gpu.memory_total_bytes / 2**20).round(),
        }))  # fmt: skip
        trees.append(pd.DataFrame({
            "rank": rank["rank"], "Elapsed time": tree.time - tree.time.min(), "CPU (%)": tree.utilization_percent,
            "Real (MB)": tree.rss_bytes / 2**20, "Virtual (MB)": tree.virtual_bytes / 2**20,
        }))  # fmt: skip
    return pd.concat(gpus, ignore_index=True), pd.concat(trees, ignore_index=True)


def over_time(results: Path, measured: pd.DataFrame, series: str) -> pd.DataFrame:
    """What the monitor recorded of every device of a node: of each number of devices the first repeat of a series.

    Columns: config, world_size, run_id, rank, seconds (since the run's first sample), utilisation, memory_bytes; empty without a monitor.
    """
    is_on_one_node = (measured.series == series) & (measured.nodes == 1)
    first_repeats = measured[is_on_one_node].sort_values(["world_size", "repeat"]).drop_duplicates("world_size")
    columns = ["config", "world_size", "run_id", "rank", "seconds", "utilisation", "memory_bytes"]
    curves = []
    for run in first_repeats.itertuples():
        log = read_monitor(results, run.run_id)
        if log.empty:
            continue
        devices = [_monitored(log, rank)[0].assign(rank=rank["rank"]) for rank in _ranks(results, run.run_id)]
        samples = pd.concat(devices)
        curve = samples.assign(
            config=label(1, run.world_size), world_size=run.world_size, run_id=run.run_id, memory_bytes=samples.bytes,
            seconds=samples.time - samples.time.min(), utilisation=samples.utilization_percent / 100,
        )  # fmt: skip
        curves.append(curve[columns])
    return pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=columns)


def configurations(measured: pd.DataFrame, series: str) -> pd.DataFrame:
    """One row per configuration of a series: `points.gather` of `MEASURES`, and config, its name in the tables."""
    series_runs = measured[(measured.series == series) & ~points.barred(measured)]
    table = points.gather(series_runs, MEASURES)
    table["config"] = [label(row.nodes, row.ranks_per_node) for row in table.itertuples()]
    return table.sort_values(["world_size", "nodes"], ignore_index=True)


def label(nodes: float, per_node: float) -> str:
    """`1 device`, `4 devices`, `2 nodes x 2 devices`."""
    devices = counted(per_node, "device")
    return devices if nodes == 1 else f"{nodes:g} nodes x {devices}"


@tabled(
    "one-node",
    "Devices of one node.",
    measure="throughput_scaling",
)
def one_node(table: pd.DataFrame, definition: str = OURS) -> pd.DataFrame:
    """Table 1: 1, 2, 4 and 8 devices of a node. Columns: see `_table`."""
    return _table(table, [(1, devices) for devices in DEVICES], definition)


@tabled(
    "several-nodes",
    "Nodes with two devices each.",
    measure="node_scaling",
)
def several_nodes(table: pd.DataFrame, definition: str = OURS) -> pd.DataFrame:
    """Table 2: 1, 2, 4 and 8 nodes with two devices each; the workshop's one node has one device. Columns: see `_table`."""
    first = (1, 1) if definition == WORKSHOP else (1, PER_NODE)
    return _table(table, [first, *((nodes, PER_NODE) for nodes in NODES[1:])], definition)


def _table(table: pd.DataFrame, layouts: Iterable[tuple[int, int]], definition: str) -> pd.DataFrame:
    """A row for each layout, measured or not, by one definition.

    Columns: those of `CONFIGURATION`; loss, accuracy (last epoch, training), throughput, peak_bytes, mean_bytes, mode_bytes;
    throughput_scaling, memory_scaling (of the mean; over 1 device), node_scaling, node_memory_scaling (over the first layout); each with <column>_low and <column>_high (95 %); repeats; runs.
    """
    columns = DEFINITIONS[definition]
    layouts = pd.DataFrame(layouts, columns=LAYOUT).assign(place=lambda wanted: range(len(wanted)))
    is_node = table.nodes.eq(1) & table.ranks_per_node.eq(layouts.ranks_per_node[0])
    device = {"throughput_scaling": columns["throughput"], "memory_scaling": columns["mean_bytes"]}
    compared = compare(table, table[table.world_size == 1], (), over=device)
    node = {"node_scaling": columns["throughput"], "node_memory_scaling": columns["mean_bytes"]}
    over_node = compare(table, table[is_node], (), over=node)
    compared = compared.assign(**over_node[stats.columns(*node)])
    for name, column in columns.items():
        compared = scaled(compared, name, column)
    rows = layouts.merge(compared, on=LAYOUT, how="left").sort_values("place", ignore_index=True)
    rows["config"] = [label(*layout) for layout in rows[LAYOUT].itertuples(index=False)]
    rows["world_size"] = rows.nodes * rows.ranks_per_node
    return rows.reindex(columns=[*CONFIGURATION, *COLUMNS, "repeats", "runs"])


@tabled(
    "expected",
    "What a reader should see, and what was measured.",
)
def expected(table: pd.DataFrame, on_gpus: bool) -> pd.DataFrame:
    """A row for each of `EXPECTED`, of configurations by our definitions. Columns: check, lowest, highest (expected), factor (measured), verdict, runs."""
    tables = pd.concat([one_node(table), several_nodes(table)]).drop_duplicates(["nodes", "ranks_per_node"])
    tables = tables.set_index(["nodes", "ranks_per_node"])
    rows = []
    for check, (layout, column, *ranges) in EXPECTED.items():
        row = tables.loc[layout]
        low, high = ranges[0 if on_gpus else 1]
        value = row[column]
        verdict = "as expected" if low <= value <= high else "not measured" if pd.isna(value) else "differs"
        rows.append(
            {"check": check, "lowest": low, "highest": high, "factor": value, "verdict": verdict, "runs": row["runs"]}
        )
    return pd.DataFrame(rows)


@tabled(
    "same-devices",
    "As many devices on one node and on several.",
    measure="ratio",
)
def same_devices(table: pd.DataFrame) -> pd.DataFrame:
    """Configurations of as many devices on one node as on several, and the ratio of their throughput.

    Columns: those of `CONFIGURATION`, throughput, ratio (over that of one node), each with its interval; repeats, runs.
    """
    on_one_node = table[table.nodes == 1]
    on_several = table[table.nodes > 1]
    both = set(on_one_node.world_size) & set(on_several.world_size)
    compared = compare(table[table.world_size.isin(both)], on_one_node, ["world_size"], over={"ratio": "throughput"})
    return compared[[*CONFIGURATION, *stats.columns("throughput", "ratio"), "repeats", "runs"]]


@tabled(
    "configurations",
    "What was measured.",
    "series config precision global_batch updates repeats device_name threads_per_rank",
    missing="`hpc submit workshop --cluster SITE`",
)
def beside(protocol: pd.DataFrame, adjusted: pd.DataFrame) -> pd.DataFrame:
    """The configurations of both, the protocol's first, with the column series; without the values of each run."""
    table = pd.concat([protocol.assign(series="protocol"), adjusted.assign(series="adjusted")], ignore_index=True)
    return table.drop(columns=[name for name in table if name.endswith("_sample")])


def efficiency(table: pd.DataFrame, series: str) -> pd.DataFrame:
    """A row for each configuration, in terms of 1 device.

    Columns: those of `CONFIGURATION`, series; throughput, efficiency (throughput over devices times that of 1 device),
    train_loss, test_loss, each with its interval; updates; repeats, runs.
    """
    compared = compare(table, table[table.world_size == 1], (), over={"speedup": "throughput"})
    compared = scaled(compared, "efficiency", "speedup", 1 / compared.world_size).assign(series=series)
    names = stats.columns("throughput", "efficiency", "train_loss", "test_loss")
    return compared[[*CONFIGURATION, "series", *names, "updates", "repeats", "runs"]]


@tabled(
    "confounds",
    "The protocol beside the adjusted study.",
    measure="efficiency",
)
def confounds(protocol: pd.DataFrame, adjusted: pd.DataFrame) -> pd.DataFrame:
    """`efficiency` of the protocol beside that of the adjusted study, for each configuration that both measured."""
    table = pd.concat([efficiency(protocol, "protocol"), efficiency(adjusted, "adjusted")], ignore_index=True)
    return table[table.groupby("config").series.transform("nunique") == 2].reset_index(drop=True)


def lines(run: Mapping[str, Any], epochs: pd.DataFrame) -> list[str]:
    """The lines that the workshop's script prints: one an epoch, one of device 0's memory over the whole job."""
    text = [
        f"Epoch [{row.epoch}/{len(epochs)}] LR: {row.lr:.6f} | Loss (train, val): {row.train_loss:.3f}, {row.test_loss:.3f} | "
        f"Accuracy (train, val): {row.train_accuracy:.2%}, {row.test_accuracy:.2%} | "
        f"Throughput: {row.samples / (row.seconds + row.eval_seconds):.1f} img/s"
        for row in epochs.itertuples()
    ]
    peak, mean, mode = (run[f"{level}_always"] / 2**20 for level in LEVELS)
    return [*text, f"[gpu_memory_log - GPU 0] Peak = {peak:.0f} MiB, Avg = {mean:.2f} MiB, Mode = {mode:.0f} MiB"]
