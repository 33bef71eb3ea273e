"""One row per configuration: its repeats gathered, and the median of each measure with its 95 % interval."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpc_utils.records.identity import CODE, POINT, SAME

from . import stats

# The software and machine that measured a run; a run's id does not hold them.
STATE = [*CODE, "hardware_id", "device_name"]

MEASURES = ["throughput", "step_seconds", "epoch_seconds", "peak_bytes", "mean_bytes", "mode_bytes"]
ESTIMATES = [name + end for name in MEASURES for end in ("", "_low", "_high")]
COLUMNS = [*SAME, *POINT, "layout", "memory", *ESTIMATES, "repeats", "runs"]


def unprofiled(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose times and costs may be compared: without a profiler."""
    return runs[runs.profile.isna()]


def oversubscribed(runs: pd.DataFrame) -> np.ndarray:
    """Whether each run had more ranks than cores."""
    return runs.oversubscribed.fillna(False).to_numpy(dtype=bool)


def of_one_state(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The runs of one torch and machine, that with most runs (of equals the latest), and remarks: on the runs left out, and
    on several digests of the measuring code."""
    remarks, own = [], runs
    if len(runs) and (states := number(runs, STATE)).max() > 0:
        latest = runs.started.astype(str).groupby(states).max()
        kept = max(latest.index, key=lambda state: ((states == state).sum(), latest[state]))
        own, others = runs[states == kept], runs[states != kept]
        each = [
            f"{name} {', '.join(sorted({*map(str, others[name])} - {str(own[name].iloc[0])}))}, not {own[name].iloc[0]}"
            for name in STATE
            if runs[name].nunique(dropna=False) > 1
        ]
        remarks = [f"{len(others)} of {len(runs)} runs are left out, not measured by the same: {'; '.join(each)}"]
    digests = sorted(map(str, own.digest.dropna().unique()))
    if len(digests) > 1:
        remarks.append(f"the runs were measured by {len(digests)} states of the code: {', '.join(digests)}")
    return own, remarks


def points(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, measured in `repeats` runs: of each measure the median and its interval.

    Columns: those of `SAME` and `POINT`; `layout` ("nodes x ranks" on each, such as 2x4); `memory`: "allocated" (tensors
    on the accelerator) or "resident" (the rank's process, on a CPU);
    throughput (sample/s); step_seconds (T of an optimizer step), epoch_seconds (T of an epoch) (s);
    peak_bytes, mean_bytes, mode_bytes (B a device, the largest over a run's ranks; mean and mode at the ends of
    steps); each with `<measure>_low` and `<measure>_high`; repeats; runs (their ids). NaN: not recorded, or a single run's
    interval.
    """
    return gather(runs)[COLUMNS]


def gather(runs: pd.DataFrame) -> pd.DataFrame:
    """`points`, with the runs behind them: `at`, their positions in `runs`, and `<measure>_each`, their values."""
    alone = runs.world_size == 1  # one node with one rank, recorded or not, without a link
    layout = {name: runs[name].where(~alone, 1) for name in ("nodes", "ranks_per_node")}
    runs = runs.assign(**layout, link_gbit=links(runs))
    memory, keys = memory_bytes(runs), [*SAME, *POINT]
    values = {
        "throughput": runs.throughput,
        "step_seconds": step_seconds(runs),
        "epoch_seconds": runs.seconds / runs.epochs,
    } | {f"{name}_bytes": memory[name] for name in ("peak", "mean", "mode")}
    numbers = number(runs, keys)
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    at = np.split(order, starts[1:]) if len(starts) else []
    found = runs[keys].iloc[order[starts]].reset_index(drop=True)
    found["layout"] = [
        f"{row.world_size:g}" if pd.isna(row.nodes) or pd.isna(row.ranks_per_node) else f"{row.nodes:g}x{row.ranks_per_node:g}"
        for row in found.itertuples()
    ]  # fmt: skip
    found["memory"] = memory["of"][order[starts]]
    found["at"], found["runs"] = _objects(at), ids(runs, at)
    for name in MEASURES:
        column = np.asarray(values[name], dtype=float)
        each = [column[group] for group in at]
        found[[name, f"{name}_low", f"{name}_high"]] = _medians(each)
        found[f"{name}_each"] = _objects(each)
    found["repeats"] = [len(group) for group in at]
    return found


def accuracy(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration whose runs were evaluated: columns of `SAME` and `POINT`, layout; epochs; accuracy (a share,
    the median of the runs' last evaluations), low, high (95 %; at most 1; NaN where an accuracy is 0), repeats, runs.

    Profiled runs are included.
    """
    runs = runs[pd.to_numeric(runs.test_accuracy).notna()]
    found = gather(runs)
    reached, epochs = (pd.to_numeric(runs[name]).to_numpy(float) for name in ("test_accuracy", "epochs"))
    each = [reached[at] for at in found["at"]]
    ends = _medians([own if (own > 0).all() else own[:0] for own in each])
    found["epochs"] = [float(np.median(epochs[at])) for at in found["at"]]
    found["accuracy"] = [float(np.median(own)) for own in each]
    found["low"], found["high"] = ends[:, 1], np.minimum(ends[:, 2], 1.0)
    return found[[*SAME, *POINT, "layout", "epochs", "accuracy", "low", "high", "repeats", "runs"]]


def step_seconds(runs: pd.DataFrame) -> pd.Series:
    """T of an optimizer step (s), of each run."""
    return runs.seconds / runs.samples * runs.global_batch


def memory_bytes(runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """`peak`, `mean` and `mode` (B) of each run, and the kind of memory in `of`: "allocated" or "resident", as in `points`."""
    accelerator = (runs.peak_allocated_bytes.notna() | runs.mean_allocated_bytes.notna()).to_numpy()
    found = {"of": np.where(accelerator, "allocated", "resident")}
    for name in ("peak", "mean", "mode"):
        allocated, resident = (
            runs[f"{name}_{of}_bytes"].to_numpy(dtype=float, na_value=np.nan) for of in ("allocated", "rss")
        )
        found[name] = np.where(accelerator, allocated, resident)
    return found


def number(frame: pd.DataFrame, keys: list[str]) -> np.ndarray:
    """Rows that are equal in all `keys` (unknown equals unknown) share a number, counted from 0 in their order."""
    return frame.groupby(keys, dropna=False).ngroup().to_numpy()


def links(runs: pd.DataFrame) -> pd.Series:
    """The limit of the nodes' links of each run (Gbit/s); NaN: none, or one rank, which needs no link."""
    return pd.to_numeric(runs.link_gbit).mask(runs.world_size == 1)


def cores_per_rank(runs: pd.DataFrame) -> pd.Series:
    """The share of a core that each run's devices were; 0: whole cores, or GPUs."""
    cores = pd.to_numeric(runs.threads_per_rank)
    return cores.where(cores < 1, 0.0)


def ids(runs: pd.DataFrame, at: list[np.ndarray]) -> np.ndarray:
    """The run ids at these positions, a tuple for each."""
    names = runs.run_id.to_numpy()
    return _objects([tuple(names[own]) for own in at])


def _medians(each: list[np.ndarray]) -> np.ndarray:
    """(points, 3): median, low, high over the repeats that recorded it."""
    known = [values[~np.isnan(values)] for values in each]
    some = [point for point, values in enumerate(known) if len(values)]
    found = np.full((len(each), 3), np.nan)
    found[some] = stats.medians([known[point] for point in some])[:, :3]
    return found


def _objects(arrays: list) -> np.ndarray:
    column = np.empty(len(arrays), dtype=object)
    column[:] = arrays
    return column
