"""Charts of profiles: where time goes, kernels, verdicts and the gain of their advice, the roofline, the device monitor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from . import drawing, style
from .drawing import Look
from .style import BLUE, GREEN, ORANGE, PINK

MS = 1e-6  # of a ns

# The parts of a device's time.
PARTS: dict[str, Look] = {
    "compute": (BLUE, ""),
    "communication, exposed": (ORANGE, "////"),
    "memory operations": (GREEN, "...."),
    "waiting for data": (PINK, "xxxx"),
    "otherwise idle": ("0.9", ""),
}
# Phases of the host.
PHASES: dict[str, Look] = {
    "data": PARTS["waiting for data"], "forward": ("0.8", ""), "backward": ("0.5", ""), "optimizer": ("0.2", "")
}  # fmt: skip
# Phases in the order of a step, with the communication that the backward pass does not hide.
EXPOSED = PARTS["communication, exposed"]
STEP: dict[str, Look] = {
    name: PHASES.get(name, EXPOSED) for name in ("data", "forward", "backward", "communication", "optimizer")
}
# Classes of kernels (`analyze.profiles.kernels.KernelClass`).
CLASSES: dict[str, Look] = {
    "GEMM": (BLUE, ""), "convolution": (style.SKY, ""), "attention": (BLUE, "...."), "normalisation": ("0.35", ""),
    "elementwise": ("0.6", ""), "reduction": ("0.6", "xxxx"), "optimizer": ("0.2", "----"), "communication": EXPOSED,
    "memory": PARTS["memory operations"], "other": ("0.85", ""),
}  # fmt: skip
MONITORED = {
    "utilisation": ("utilisation (%)", 1), "memory_bytes": ("memory (GiB)", 2**-30), "power_watts": ("power (W)", 1),
    "temperature": ("temperature (°C)", 1),
}  # fmt: skip


def breakdown(groups: Mapping[str, pd.DataFrame]) -> Figure:
    """The shares of `PARTS` in each rank's span, a block of bars for each group (before, after). Bars show where communication
    is not known. `groups`: frames of `analyze.profiles.breakdown.table`, by name."""
    shares = parts(groups)
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.9 + 0.27 * (len(shares) + len(groups) - 1)))
    places = -np.arange(len(shares)) - 0.6 * (shares.group != shares.group.shift()).cumsum().to_numpy()
    drawing.stacked(axes, places, shares, PARTS, numbers=shares)
    for place in places[shares["communication, exposed"].isna()]:
        axes.text(101, place, "communication not known", va="center", fontsize=6.5)
    labels = []
    for row in shares.itertuples():
        who = f"rank {row.rank}" if pd.notna(row.rank) else f"GPU {row.device}" if pd.notna(row.device) else ""
        labels.append(", ".join(filter(None, (row.group if len(groups) > 1 else "", who))) or row.group)
    axes.set_yticks(places, labels)
    axes.set(xlim=(0, 100), xlabel="share of the span (%)")
    drawing.legend(figure, len(PARTS), fontsize=7, columnspacing=1.2)
    return figure


def parts(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What `breakdown` draws: group, rank, device, and each of `PARTS` in percent of the span (NaN: not known). Each moment counts
    once, for the first part that it belongs to."""
    frames = []
    for name, frame in groups.items():
        rows = frame.drop(columns=["rank", "device", "remarks"], errors="ignore").astype("Float64").astype(float)
        exposed, waiting = rows.exposed_communication_ns.fillna(0), rows.loader_wait_ns.fillna(0)
        ns = {
            "compute": rows.compute_ns,
            "communication, exposed": rows.exposed_communication_ns,
            "memory operations": (rows.busy_ns - rows.compute_ns - exposed).clip(lower=0),
            "waiting for data": waiting,
            "otherwise idle": rows.idle_ns - waiting,
        }
        shares = {part: 100 * values / rows.span_ns for part, values in ns.items()}
        frames.append(frame[["rank", "device"]].assign(**shares).assign(group=name))
    return pd.concat(frames, ignore_index=True)[["group", "rank", "device", *PARTS]]


def overlap(frame: pd.DataFrame) -> Figure:
    """Each rank's hidden and exposed communication in ms; with the columns wire_ns and waiting_ns (`collectives.table`) also the time
    that moved bytes and the wait for the slowest rank. `frame`: `analyze.profiles.breakdown.table`."""
    known = frame[frame.communication_ns.notna()]
    pairs = [{"overlapped_ns": "hidden behind compute", "exposed_communication_ns": "exposed"}]
    if "wire_ns" in known and known.wire_ns.notna().any():
        pairs.append({"wire_ns": "moving bytes", "waiting_ns": "waiting for the slowest rank"})
    size = (style.PAGE, 0.9 + 0.25 * len(known))
    figure, panels = plt.subplots(1, len(pairs), figsize=size, sharex=True, sharey=True, squeeze=False)
    for axes, names in zip(panels.flat, pairs, strict=True):
        looks = dict(zip(names.values(), (PARTS["compute"], EXPOSED), strict=True))
        times = known[list(names)].rename(columns=names).astype(float) * MS
        drawing.stacked(axes, np.arange(len(known)), times, looks)
        axes.set_xlabel("communication kernels (ms)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=7)
    panels.flat[0].set_yticks(np.arange(len(known)), [f"rank {rank}" for rank in known["rank"]])
    panels.flat[0].invert_yaxis()
    return figure


def kernels(table: pd.DataFrame, *, most: int = 12) -> Figure:
    """The kernels that took the most time: name, share of all kernel time, class.

    `table`: `analyze.profiles.kernels.table`: name, kind, count, total_ns, share.
    """
    top = table.nlargest(most, "total_ns").iloc[::-1].reset_index(drop=True)
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.8 + 0.2 * len(top)))
    for kind, look in CLASSES.items():
        own = top[top.kind == kind]
        if len(own):
            drawing.stacked(axes, own.index, pd.DataFrame({kind: 100 * own["share"]}), {kind: look})
    for row in top.itertuples():
        drawing.near(
            axes, f"{row.total_ns * MS:,.1f} ms in {row.count:,}", (100 * row.share, row.Index), (3, 0), fontsize=6.5
        )
    names = [name if len(name) <= 62 else f"{name[:61]}…" for name in top.name]
    axes.set_yticks(range(len(top)), names, fontsize=6.5)
    axes.set(xlim=(0, 118 * float(top.share.max())), xlabel="share of the time in kernels (%)")
    axes.legend(loc="lower right", fontsize=7)
    return figure


def steps(frame: pd.DataFrame) -> Figure:
    """The parts of a step, a bar for each configuration. Numbers are medians; lengths are scaled to a whole step, as medians of
    shares need not add up to one.

    `frame`: columns configuration, verdict, and the share of the step (0 to 1, or NaN) of each of `STEP`.
    """
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.8 + 0.27 * len(frame)))
    shares, places = 100 * frame[list(STEP)].astype(float), np.arange(len(frame))
    drawing.stacked(axes, places, 100 * shares.div(shares.sum(axis=1), axis=0), STEP, numbers=shares)
    for place, verdict in zip(places, frame.verdict, strict=True):
        axes.text(101, place, verdict, va="center", fontsize=7)
    axes.set_yticks(places, frame.configuration)
    axes.invert_yaxis()
    axes.set_xticks(range(0, 101, 20))
    axes.set(xlim=(0, 128), xlabel="share of the step (%)")
    drawing.legend(figure, len(STEP), fontsize=7, columnspacing=1.2)
    return figure


def promises(frame: pd.DataFrame) -> Figure:
    """The gain of each change with its interval, and the upper bound of the verdict.

    `frame`: columns change, gain, low, high (NaN without interval), at_most (NaN: nothing was promised).
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 0.95 + 0.28 * len(frame)))
    places = np.arange(len(frame))
    axes.axvline(1, **style.IDEAL)
    promised = {"marker": "|", "s": 130, "linewidth": 2, "color": ORANGE, "label": "promised at most"}
    axes.scatter(frame.at_most, places, **promised, zorder=2)
    drawing.points(
        axes, places, frame, "gain", horizontal=True, fmt="o", color=BLUE, label="measured, 95 %", zorder=3
    )
    drawing.named_rows(axes, frame.change)
    axes.set_ylim(len(frame) - 0.5, -0.5)
    axes.set_xlim(0, 1.08 * np.nanmax([frame.at_most, frame.gain, frame.high]))
    axes.set_xlabel("throughput with / without")
    figure.legend(loc="outside upper right", ncols=2, fontsize=7)
    return figure


def roofline(
    points: pd.DataFrame, bandwidths: Mapping[str, float], peaks: Mapping[str, float] | None = None
) -> Figure:
    """The roofline (Williams, Waterman, Patterson 2009): operations/s against operations per byte of DRAM, a point for each kernel,
    a marker for each GPU.

    Args:
        points: `analyze.profiles.roofline.points`. bandwidths: of each GPU's DRAM, byte/s. peaks: operations/s, where known.
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.7))
    low, high = points.intensity.min() / 4, points.intensity.max() * 8
    dense = np.geomspace(low, high, 100)
    for number, (device, own) in enumerate(points.groupby("device")):
        look = style.series(number)
        if device in bandwidths:
            roof = np.minimum(dense * bandwidths[device], (peaks or {}).get(device, np.inf))
            axes.plot(dense, roof, **look | {"marker": None, "linewidth": 1})
        axes.plot(own.intensity, own.achieved, label=device, **look | {"linestyle": "none"})
        for row in own.itertuples():
            drawing.near(
                axes, f"{row.name}, {row.precision}", (row.intensity, row.achieved), (5, -3), va="top", fontsize=6.5
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.set(xlabel="operations a byte of DRAM", ylabel="operations/s")
    axes.legend(loc="lower right", fontsize=7)
    return figure


def utilisation(samples: Mapping[str, pd.DataFrame]) -> Figure:
    """What the monitor measured over time: utilisation, memory, and power and temperature where known.

    `samples`: frames of `analyze.profiles.profiled_runs.monitor`, by device.
    """
    every = pd.concat(samples.values())
    shown = {column: one for column, one in MONITORED.items() if every[column].notna().any()}
    size = (style.PAGE, 1.1 + 0.95 * len(shown))
    figure, panels = plt.subplots(len(shown), 1, figsize=size, sharex=True, squeeze=False)
    for panel, (column, (label, scale)) in zip(panels.flat, shown.items(), strict=True):
        for number, (name, frame) in enumerate(samples.items()):
            look = style.series(number) | {"markersize": 2.5, "markevery": max(len(frame) // 12, 1)}
            panel.plot(frame.seconds, scale * frame[column], **look, label=name)
        panel.set_ylabel(label)
        panel.set_ylim(0, 1.1 * panel.dataLim.ymax if panel.dataLim.ymax > 0 else 1)  # a constant is not on the edge
    panels.flat[-1].set_xlabel("s since the first sample")
    drawing.legend(figure, 4, fontsize=7)
    return figure
