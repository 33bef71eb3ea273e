"""One row a configuration: repeats gathered, and the median of each measure with its 95 % interval."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpc_utils.records.identity import CODE, POINT, SAME

from . import stats

# What measured a run, and its id does not hold.
STATE = [*CODE, "hardware_id", "device_name"]

MEASURES = ["throughput", "step_seconds", "epoch_seconds", "peak_bytes", "mean_bytes", "mode_bytes"]
ESTIMATES = [name + end for name in MEASURES for end in ("", "_low", "_high")]
COLUMNS = [*SAME, *POINT, "layout", "memory", *ESTIMATES, "repeats", "runs"]


def unwatched(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs whose times and costs may be compared: not those that a profiler watched."""
    return runs[runs.profile.isna()]


def undisturbed(runs: pd.DataFrame) -> pd.DataFrame:
    """Of these, the runs whose ranks had the cores that they wanted."""
    return unwatched(runs[~runs.oversubscribed.fillna(False).astype(bool)])


def of_one_state(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The runs of one torch and machine, that of most of them (of equals the latest); and a line on the runs left out, and
    one on the states of the measuring code, if there are several: a study may be continued by other code."""
    if runs.empty or (states := number(runs, STATE)).max() == 0:
        return runs, codes(runs)
    latest = runs.started.astype(str).groupby(states).max()
    sizes = np.bincount(states)
    kept = max(latest.index, key=lambda state: (sizes[state], latest[state]))
    own, others = runs[states == kept], runs[states != kept]
    apart = {name: own[name].iloc[0] for name in STATE if runs[name].nunique(dropna=False) > 1}
    each = (
        f"{name} {', '.join(sorted(set(map(str, others[name])) - {str(ours)}))}, not {ours}"
        for name, ours in apart.items()
    )
    left_out = f"{len(others)} of {len(runs)} runs are left out, not measured by the same: {'; '.join(each)}"
    return own, [left_out, *codes(own)]


def codes(runs: pd.DataFrame) -> list[str]:
    """A line that lists the digests of the measuring code, if these runs have several."""
    digests = sorted(map(str, runs.digest.dropna().unique()))
    return (
        [f"the runs were measured by {len(digests)} states of the code: {', '.join(digests)}"] if digests[1:] else []
    )


def points(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration, measured in `repeats` runs: of each measure the median and its interval.

    Columns: those of `SAME` and `POINT`; `layout` ("nodes x ranks" on each, such as 2x4); `memory`, what the bytes
    are of: "allocated" (tensors on the accelerator) or "resident" (the rank's process, on a CPU);
    throughput (sample/s); step_seconds (T of an optimizer step), epoch_seconds (T of an epoch) (s);
    peak_bytes, mean_bytes, mode_bytes (B a device, the largest over a run's ranks; mean and mode at the ends of
    steps); each with `<measure>_low` and `<measure>_high`; repeats; runs (their ids). NaN: not recorded, or a single run's
    interval.
    """
    return gather(runs)[COLUMNS]


def gather(runs: pd.DataFrame) -> pd.DataFrame:
    """`points`, with the runs behind them: `at`, their positions in `runs`, and `<measure>_each`, their values."""
    runs = _complete(runs)
    memory = memory_bytes(runs)
    values = {
        "throughput": runs.throughput,
        "step_seconds": step_seconds(runs),
        "epoch_seconds": runs.seconds / runs.epochs,
    } | {f"{name}_bytes": memory[name] for name in ("peak", "mean", "mode")}
    values = {name: np.asarray(column, dtype=float) for name, column in values.items()}
    order, starts = _groups(number(runs, [*SAME, *POINT]))
    at = np.split(order, starts[1:]) if len(starts) else []
    first = order[starts]
    found = runs[[*SAME, *POINT]].iloc[first].reset_index(drop=True)
    found["layout"] = [_layout(row) for row in found.itertuples()]
    found["memory"] = memory["of"][first]
    found["at"] = _objects(at)
    found["runs"] = ids(runs, at)
    for name in MEASURES:
        each = [values[name][group] for group in at]
        found[[name, f"{name}_low", f"{name}_high"]] = _medians(each)
        found[f"{name}_each"] = _objects(each)
    found["repeats"] = [len(group) for group in at]
    return found


def step_seconds(runs: pd.DataFrame) -> pd.Series:
    """T of an optimizer step (s), of each run."""
    return runs.seconds / runs.samples * runs.global_batch


def memory_bytes(runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """`peak`, `mean` and `mode` (B) of each run, and what they are `of`: "allocated" or "resident", as in `points`."""
    accelerator = (runs.peak_allocated_bytes.notna() | runs.mean_allocated_bytes.notna()).to_numpy()
    found = {
        name: np.where(
            accelerator,
            runs[f"{name}_allocated_bytes"].to_numpy(dtype=float, na_value=np.nan),
            runs[f"{name}_rss_bytes"].to_numpy(dtype=float, na_value=np.nan),
        )
        for name in ("peak", "mean", "mode")
    }
    return found | {"of": np.where(accelerator, "allocated", "resident")}


def number(frame: pd.DataFrame, keys: list[str]) -> np.ndarray:
    """Rows that are equal in all `keys` (unknown is equal to unknown) share a number, counted from 0 in their order."""
    return frame.groupby(keys, dropna=False).ngroup().to_numpy()


def _groups(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(positions ordered by their group's number, where in them each group begins)."""
    order = np.argsort(numbers, kind="stable")
    return order, np.flatnonzero(np.diff(numbers[order], prepend=-1))


def _complete(runs: pd.DataFrame) -> pd.DataFrame:
    """One rank is one node with one rank, said or not, and needs no link."""
    alone = runs.world_size == 1
    layout = {name: runs[name].where(~alone, 1) for name in ("nodes", "ranks_per_node")}
    return runs.assign(**layout, link_gbit=links(runs))


def links(runs: pd.DataFrame) -> pd.Series:
    """What the nodes' links of each run were limited to (Gbit/s); NaN: as they are, or on one rank, which needs none."""
    return pd.to_numeric(runs.link_gbit).mask(runs.world_size == 1)


def cores_per_rank(runs: pd.DataFrame) -> pd.Series:
    """The share of a core that each run's devices were; 0: whole cores, or GPUs."""
    cores = pd.to_numeric(runs.threads_per_rank)
    return cores.where(cores < 1, 0.0)


def _layout(row) -> str:
    if pd.isna(row.nodes) or pd.isna(row.ranks_per_node):
        return f"{int(row.world_size)}"
    return f"{int(row.nodes)}x{int(row.ranks_per_node)}"


def _medians(each: list[np.ndarray]) -> np.ndarray:
    """(points, 3): median, low, high over the repeats that recorded it."""
    known = [values[~np.isnan(values)] for values in each]
    some = [point for point, values in enumerate(known) if len(values)]
    found = np.full((len(each), 3), np.nan)
    found[some] = stats.medians([known[point] for point in some])[:, :3]
    return found


def ids(runs: pd.DataFrame, at: list[np.ndarray]) -> np.ndarray:
    """The run ids at these positions, a tuple for each."""
    names = runs.run_id.to_numpy()
    return _objects([tuple(names[own]) for own in at])


def _objects(arrays: list) -> np.ndarray:
    column = np.empty(len(arrays), dtype=object)
    column[:] = arrays
    return column
