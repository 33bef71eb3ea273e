"""Figures of profiles: where time went, kernels, verdicts and what their advice gave, the roofline, the monitor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import style
from .style import BLUE, GREEN, ORANGE, PINK

MS = 1e-6  # of a ns

Look = tuple[str, str]  # colour, hatch: distinguishable in grey by both

# What a device's time goes to.
PARTS: dict[str, Look] = {
    "compute": (BLUE, ""),
    "communication, exposed": (ORANGE, "////"),
    "memory operations": (GREEN, "...."),
    "waiting for data": (PINK, "xxxx"),
    "otherwise idle": ("0.9", ""),
}

# Phases of the host.
PHASES: dict[str, Look] = {
    "data": PARTS["waiting for data"],
    "forward": ("0.8", ""),
    "backward": ("0.5", ""),
    "optimizer": ("0.2", ""),
}

# The same in the order of a step, with the communication that the backward pass does not hide.
STEP: dict[str, Look] = {
    "data": PHASES["data"],
    "forward": PHASES["forward"],
    "backward": PHASES["backward"],
    "communication": PARTS["communication, exposed"],
    "optimizer": PHASES["optimizer"],
}

# Kernels by class (`analyze.profiles.kernels.KernelClass`), as above where they mean the same.
CLASSES: dict[str, Look] = {
    "GEMM": (BLUE, ""),
    "convolution": ("#56B4E9", ""),
    "attention": (BLUE, "...."),
    "normalisation": ("0.35", ""),
    "elementwise": ("0.6", ""),
    "reduction": ("0.6", "xxxx"),
    "optimizer": ("0.2", "----"),
    "communication": PARTS["communication, exposed"],
    "memory": PARTS["memory operations"],
    "other": ("0.85", ""),
}


def breakdown(groups: Mapping[str, pd.DataFrame]) -> Figure:
    """The shares of `PARTS` in each rank's span, as bars; one block of bars per group (before, after).

    `groups`: frames as of `analyze.profiles.breakdown.table`, by name. Communication that is not known is left out, and the
    bar says so.
    """
    shares = parts(groups)
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.9 + 0.27 * (len(shares) + len(groups) - 1)))
    places = -np.arange(len(shares)) - 0.6 * (shares.group != shares.group.shift()).cumsum().to_numpy()
    _stacked(axes, places, shares, PARTS)
    for place in places[shares["communication, exposed"].isna()]:
        axes.text(101, place, "communication not known", va="center", fontsize=6.5)
    labels = []
    for row in shares.itertuples():
        who = f"rank {row.rank}" if pd.notna(row.rank) else f"GPU {row.device}" if pd.notna(row.device) else ""
        labels.append(", ".join(filter(None, (row.group if len(groups) > 1 else "", who))) or row.group)
    axes.set_yticks(places, labels)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the span (%)")
    _legend(figure, PARTS)
    return figure


def parts(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What `breakdown` draws: group, rank, device, and the percent of the span of each of `PARTS` (NaN: not known). Each
    moment counts once, as the first part that it is."""
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
    """Each rank's communication that computation hides and that is exposed, in ms.

    `frame` as of `analyze.profiles.breakdown.table`; with columns wire_ns and waiting_ns (`collectives.table`) also what of
    it moved bytes and what waited for the slowest rank.
    """
    known = frame[frame.communication_ns.notna()]
    pairs = [("overlapped_ns", "exposed_communication_ns", "hidden behind compute", "exposed")]
    if "wire_ns" in known and known.wire_ns.notna().any():
        pairs.append(("wire_ns", "waiting_ns", "moving bytes", "waiting for the slowest rank"))
    size = (style.PAGE, 0.9 + 0.25 * len(known))
    figure, panels = plt.subplots(1, len(pairs), figsize=size, sharex=True, sharey=True, squeeze=False)
    ranks = np.arange(len(known))
    for axes, (first, second, one, other) in zip(panels.flat, pairs, strict=True):
        looks = {one: PARTS["compute"], other: PARTS["communication, exposed"]}
        times = known[[first, second]].astype(float).set_axis([one, other], axis=1) * MS
        _stacked(axes, ranks, times, looks, written=False)
        axes.set_xlabel("communication kernels (ms)")
        axes.legend(handles=patches(looks), loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=7)
    panels.flat[0].set_yticks(ranks, [f"rank {rank}" for rank in known["rank"]])
    panels.flat[0].invert_yaxis()
    return figure


def kernels(table: pd.DataFrame, *, most: int = 12) -> Figure:
    """The kernels that took the most time: name, share of all kernel time, class.

    `table`: columns name, kind, count, total_ns, share, as of `analyze.profiles.kernels.table`.
    """
    top = table.nlargest(most, "total_ns").iloc[::-1]
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.8 + 0.2 * len(top)))
    for place, row in enumerate(top.to_dict("records")):
        share, (colour, hatch) = 100 * row["share"], CLASSES[row["kind"]]
        axes.barh(place, share, height=0.75, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4)
        text = f"{row['total_ns'] * MS:,.1f} ms in {row['count']:,}"
        axes.annotate(text, (share, place), (3, 0), textcoords="offset points", va="center", fontsize=6.5)
    names = [name if len(name) <= 62 else f"{name[:61]}…" for name in top.name]
    axes.set_yticks(range(len(top)), names, fontsize=6.5)
    axes.set_xlim(0, 118 * float(top.share.max()))
    axes.set_xlabel("share of the time in kernels (%)")
    axes.grid(axis="y", visible=False)
    used = {name: look for name, look in CLASSES.items() if name in set(top["kind"])}
    axes.legend(handles=patches(used), loc="lower right", fontsize=7)
    return figure


def steps(frame: pd.DataFrame) -> Figure:
    """What a step goes to, a bar per configuration. The numbers are the medians; lengths are scaled to a whole step, as
    medians of shares need not add up to one.

    `frame`: columns configuration, verdict, and the share of the step (0 to 1, or NaN) of each of `STEP`.
    """
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.8 + 0.27 * len(frame)))
    shares, places = 100 * frame[list(STEP)].astype(float), np.arange(len(frame))
    _stacked(axes, places, 100 * shares.div(shares.sum(axis=1), axis=0), STEP, shown=shares)
    for place, verdict in zip(places, frame.verdict, strict=True):
        axes.text(101, place, verdict, va="center", fontsize=7)
    axes.set_yticks(places, frame.configuration)
    axes.invert_yaxis()
    axes.set_xlim(0, 128)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("share of the step (%)")
    _legend(figure, STEP)
    return figure


def promises(frame: pd.DataFrame) -> Figure:
    """The gain of each change with its interval, beside the most that the verdict promises.

    `frame`: columns change (in words), gain, low, high (NaN without interval), at_most (NaN: nothing was promised).
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 0.95 + 0.28 * len(frame)))
    places = np.arange(len(frame))
    reach = np.nan_to_num(np.array([frame.gain - frame.low, frame.high - frame.gain], float))
    axes.axvline(1, **style.IDEAL)
    promised = {"marker": "|", "s": 130, "linewidth": 2, "color": ORANGE, "label": "promised at most"}
    axes.scatter(frame.at_most, places, **promised, zorder=2)
    axes.errorbar(frame.gain, places, xerr=reach, fmt="o", color=BLUE, label="measured, 95 %", zorder=3)
    axes.set_yticks(places, frame.change)
    axes.set_ylim(len(frame) - 0.5, -0.5)
    axes.set_xlim(0, 1.08 * np.nanmax([frame.at_most, frame.gain, frame.high]))
    axes.set_xlabel("throughput with / without")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper right", ncols=2, fontsize=7)
    return figure


def roofline(
    points: pd.DataFrame, bandwidths: Mapping[str, float], peaks: Mapping[str, float] | None = None
) -> Figure:
    """The roofline (Williams, Waterman, Patterson 2009): operations/s against operations per byte of DRAM, a marker per GPU,
    a point per kernel.

    `points` as of `analyze.profiles.roofline.points`. bandwidths: byte/s of each GPU's DRAM, its slope; peaks: operations/s
    of each, its flat part, where it is known.
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.7))
    low, high = points.intensity.min() / 4, points.intensity.max() * 8
    dense = np.geomspace(low, high, 100)
    for number, (device, own) in enumerate(points.groupby("device")):
        colour, line, marker = style.series(number)
        flat = (peaks or {}).get(device, np.inf)
        if device in bandwidths:
            axes.plot(dense, np.minimum(dense * bandwidths[device], flat), linestyle=line, color=colour, linewidth=1)
        axes.plot(own.intensity, own.achieved, marker, color=colour, linestyle="none", label=device)
        for row in own.itertuples():
            text, at = f"{row.name}, {row.precision}", (row.intensity, row.achieved)
            axes.annotate(text, at, (5, -3), textcoords="offset points", va="top", fontsize=6.5)
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    axes.set(xlabel="operations a byte of DRAM", ylabel="operations/s")
    axes.legend(loc="lower right", fontsize=7)
    return figure


def utilisation(samples: Mapping[str, pd.DataFrame]) -> Figure:
    """What the monitor saw over time, a colour per device: utilisation, memory, and power and temperature where known.

    `samples`: frames as of `analyze.profiles.monitor.read`, by device.
    """
    every = pd.concat(samples.values())
    shown = {"utilisation": "utilisation (%)", "memory_bytes": "memory (GiB)", "power_watts": "power (W)"}
    shown["temperature"] = "temperature (°C)"
    shown = {column: label for column, label in shown.items() if every[column].notna().any()}
    size = (style.PAGE, 1.1 + 0.95 * len(shown))
    figure, panels = plt.subplots(len(shown), 1, figsize=size, sharex=True, squeeze=False)
    for number, (name, frame) in enumerate(samples.items()):
        colour, line, marker = style.series(number)
        look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 2.5}
        look["markevery"] = max(len(frame) // 12, 1)
        for panel, column in zip(panels.flat, shown, strict=True):
            values = frame[column] / (2**30 if column == "memory_bytes" else 1)
            panel.plot(frame.seconds, values, **look, label=name)
    for panel, label in zip(panels.flat, shown.values(), strict=True):
        panel.set_ylabel(label)
        panel.set_ylim(0, 1.1 * panel.dataLim.ymax if panel.dataLim.ymax > 0 else 1)  # a constant is not on the edge
    panels.flat[-1].set_xlabel("s since the first sample")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(samples), 4), fontsize=7)
    return figure


def _stacked(
    axes: Axes, places: np.ndarray, shares: pd.DataFrame, looks: Mapping[str, Look], *,
    shown: pd.DataFrame | None = None, written: bool = True,
) -> None:  # fmt: skip
    """Horizontal bars of the columns `looks` of `shares`; from 5 on their numbers are written, or those of `shown`."""
    left = np.zeros(len(shares))
    for part, (colour, hatch) in looks.items():
        widths = shares[part].fillna(0.0).to_numpy(float)
        axes.barh(places, widths, left=left, height=0.75, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4)
        dark = not hatch and np.dot(to_rgb(colour), (0.3, 0.6, 0.1)) < 0.6
        ink, box = (
            "white" if dark else "black",
            {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if hatch else None,
        )
        look = {"ha": "center", "va": "center", "fontsize": 6.5, "color": ink, "bbox": box}
        numbers = (shares if shown is None else shown)[part]
        for place, value, middle in zip(places, numbers, left + widths / 2, strict=True):
            if written and value >= 5:
                axes.text(middle, place, f"{value:.0f}", **look)
        left += widths
    axes.grid(axis="y", visible=False)


def patches(looks: Mapping[str, Look]) -> list[Patch]:
    """Handles for a legend."""
    return [Patch(facecolor=look[0], hatch=look[1], edgecolor="white", label=name) for name, look in looks.items()]


def _legend(figure: Figure, looks: Mapping[str, Look]) -> None:
    handles = patches(looks)
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=7, columnspacing=1.2)
