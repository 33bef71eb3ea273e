"""Charts of profiles: where time goes, kernels, verdicts and the gain of their advice, the roofline, the device monitor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from . import drawing, style
from .chart import charted

MS = 1e-6  # of a ns
PARTS = ["compute", "communication, exposed", "memory operations", "waiting for data", "otherwise idle"]
# Phases in the order of a step, with the communication that the backward pass does not hide.
STEP = ["data", "forward", "backward", "communication", "optimizer"]
# Two ways to divide the time of communication kernels.
OVERLAP = [
    {"overlapped_ns": "hidden behind compute", "exposed_communication_ns": "exposed"},
    {"wire_ns": "transfer", "waiting_ns": "waiting for the slowest rank"},
]
MONITORED = ["utilisation", "memory_bytes", "power_watts", "temperature"]


def _rows(count: int, width: float = style.PAGE) -> tuple[Figure, plt.Axes]:
    return plt.subplots(figsize=(width, 0.9 + 0.27 * count))


def _shares(
    shares: pd.DataFrame, names: Iterable[str], rows: Iterable[str], whole: str, numbers: pd.DataFrame | None = None
) -> plt.Axes:
    """A bar for each of `rows`: the columns `names` of `shares`, percent of the `whole`; `numbers`: written into them."""
    _, axes = _rows(len(shares))
    drawing.stacked(axes, np.arange(len(shares)), shares, names, numbers=shares if numbers is None else numbers)
    drawing.named_rows(axes, rows)
    axes.set(xlim=(0, 100), xlabel=f"share of the {whole} (%)")
    return axes


def parts(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What `breakdown` draws: group, rank, device, and each of `PARTS` in percent of the span (NaN: not known). Each moment counts
    once, for the first part that it belongs to. `groups`: frames of
    `analyze.profiles.breakdown.breakdown_table`, by name (before, after)."""
    if not groups:
        return pd.DataFrame(columns=["group", "rank", "device", *PARTS])
    rows = pd.concat(groups, names=["group"]).reset_index("group").reset_index(drop=True)
    ns = rows.filter(regex="_ns$").astype("Float64").astype(float)
    waiting = ns.loader_wait_ns.fillna(0)
    times = {
        "compute": ns.compute_ns,
        "communication, exposed": ns.exposed_communication_ns,
        "memory operations": (ns.busy_ns - ns.compute_ns - ns.exposed_communication_ns.fillna(0)).clip(lower=0),
        "waiting for data": waiting,
        "otherwise idle": ns.idle_ns - waiting,
    }
    shares = {part: 100 * values / ns.span_ns for part, values in times.items()}
    return rows[["group", "rank", "device"]].assign(**shares)


@charted("parts", "What each device spends its time on.")
def breakdown(shares: pd.DataFrame) -> Figure:
    """The shares of `PARTS` in each rank's span. Bars show where communication is not known. `shares`: `parts`."""
    several = shares.group.nunique() > 1
    labels = [f"rank {row.rank}" if pd.notna(row.rank) else f"GPU {row.device}" for row in shares.itertuples()]
    axes = _shares(shares, PARTS, shares.group + ", " + labels if several else labels, "span")
    unknown = np.flatnonzero(shares["communication, exposed"].isna())
    drawing.beside(axes, unknown, ["communication not known"] * len(unknown))
    return axes.figure


@charted("overlap", "Communication of each rank: hidden or exposed, and transfer or waiting for the slowest rank.")
def overlap(frame: pd.DataFrame) -> Figure:
    """Each rank's hidden and exposed communication in ms, and the time of the transfer and the wait for the slowest rank.
    `frame`: `analyze.profiles.breakdown.breakdown_table` with `collectives.collectives_table`."""
    rows = frame[frame.communication_ns.notna()]
    figure, (panels,) = drawing.panels(2, height=0.4 + 0.22 * len(rows), width=style.PAGE, sharex=True, sharey=True)
    for axes, names in zip(panels, OVERLAP, strict=True):
        times = rows[list(names)].rename(columns=names).astype(float) * MS
        drawing.stacked(axes, np.arange(len(rows)), times, names.values())
        axes.set_xlabel("communication kernels (ms)")
        drawing.legend_above(axes, ncols=2)
    drawing.named_rows(panels[0], rows["rank"].map("rank {}".format))
    return figure


@charted("kernels", "The kernels that take most of the time.")
def kernels(table: pd.DataFrame) -> Figure:
    """Each kernel's share of all kernel time, its class, time and count. `table`: `analyze.profiles.kernels.table`, longest first."""
    figure, axes = _rows(len(table))
    shares = table.pivot(columns="kind", values="share").mul(100).reindex(table.index)
    drawing.stacked(axes, range(len(table)), shares, shares)
    drawing.beside(
        axes, range(len(table)), [f"{row.total_ns * MS:,.1f} ms in {row.count:,}" for row in table.itertuples()]
    )
    drawing.named_rows(axes, table.name.str.slice(0, 44))
    axes.set_xlabel("share of the time in kernels (%)")
    return figure


@charted("kinds", "Time in kernels by their kind.")
def kinds(frame: pd.DataFrame) -> Figure:
    """A bar for each configuration. `frame`: `analyze.profiles.kernels.kinds`."""
    shares = 100 * frame.drop(columns=["configuration", "runs"], errors="ignore")
    return _shares(shares, shares, frame.configuration, "time in kernels").figure


@charted("steps", "What a step of each configuration goes to, and the verdict on it.")
def steps(frame: pd.DataFrame) -> Figure:
    """The parts of a step, a bar for each configuration. Numbers are medians; lengths are scaled to a whole step, as medians of
    shares need not add up to one.

    `frame`: columns configuration, verdict, and the share of the step (0 to 1, or NaN) of each of `STEP`.
    """
    shares = 100 * frame[STEP].astype(float)
    axes = _shares(100 * shares.div(shares.sum(axis=1), axis=0), STEP, frame.configuration, "step", shares)
    drawing.beside(axes, range(len(frame)), frame.verdict)
    return axes.figure


@charted("promises", "The measured gain of each recommended change, and its bound from the profile before.")
def promises(frame: pd.DataFrame) -> Figure:
    """The gain of each change with its interval, and the upper bound of the verdict.

    `frame`: columns change, gain, low, high (NaN without interval), at_most (NaN: nothing was promised).
    """
    figure, axes = _rows(len(frame), style.COLUMN)
    places = np.arange(len(frame))
    axes.axvline(1, **style.IDEAL)
    axes.scatter(frame.at_most, places, marker="|", s=130, color=style.ROLES["second"], label="bound")
    drawing.points(axes, places, frame, "gain", horizontal=True, fmt="o", color=style.ROLES["main"], label="measured")
    drawing.named_rows(axes, frame.change)
    axes.set_xlim(left=0)
    return figure


@charted("roofline", "Kernels under what their GPU's memory and, where its peak is known, arithmetic allow.")
def roofline(points: pd.DataFrame, bandwidths: Mapping[str, float], peaks: Mapping[str, float]) -> Figure:
    """The roofline (Williams, Waterman, Patterson 2009): operations/s against operations per byte of DRAM, a point for each kernel,
    a marker for each GPU.

    Args:
        points: `analyze.profiles.roofline.points`. bandwidths: of each GPU's DRAM, byte/s. peaks: operations/s, where known.
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.7))
    dense = np.geomspace(points.intensity.min() / 4, points.intensity.max() * 8, 100)
    for number, (device, device_kernels) in enumerate(points.groupby("device")):
        look = style.series(number)
        if device in bandwidths:
            roof = np.minimum(dense * bandwidths[device], peaks.get(device, np.inf))
            axes.plot(dense, roof, **look | {"marker": None, "linewidth": 1})
        axes.plot(device_kernels.intensity, device_kernels.achieved, label=device, **look | {"linestyle": "none"})
    for row in points.itertuples():
        drawing.near(axes, f"{row.name}, {row.precision}", (row.intensity, row.achieved), (5, -3), va="top")
    axes.set(xscale="log", yscale="log", xlabel="operations a byte of DRAM", ylabel="operations/s")
    return figure


@charted("monitor", "What the monitor recorded of devices and hosts over a whole run.")
def utilisation(samples: pd.DataFrame) -> Figure:
    """What the monitor measured over time: utilisation, memory, and power and temperature where known.

    `samples`: a frame of `analyze.profiles.profiled_runs.monitors`.
    """
    columns = [column for column in MONITORED if samples[column].notna().any()]
    figure, panels = plt.subplots(
        len(columns), 1, figsize=(style.PAGE, 1.1 + 0.95 * len(columns)), sharex=True, squeeze=False
    )
    for panel, column in zip(panels.flat, columns, strict=True):
        drawing.lines(panel, samples, "seconds", column, "device", marker=None)
        panel.set_ylim(0, max(1.1 * panel.dataLim.ymax, 1))  # a constant is not on the edge
    panels.flat[-1].set_xlabel("time since the first sample (s)")
    return figure
