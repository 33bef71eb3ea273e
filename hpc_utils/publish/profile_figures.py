"""Figures of profiles: what each device did and when, what its time went to, which kernels took it, and how near the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from . import style

if TYPE_CHECKING:
    from hpc_utils.analyze.timeline import Ranges, Timeline

BINS = 1200  # of a timeline, across the page: finer than print
MS = 1e-6  # of a ns

# What a device's time goes to: colour, hatch. Told apart in grey by both.
PARTS = {
    "compute": ("#0072B2", ""),
    "communication, exposed": ("#D55E00", "////"),
    "memory operations": ("#009E73", "...."),
    "waiting for data": ("#CC79A7", "xxxx"),
    "otherwise idle": ("0.9", ""),
}
PHASES = {"data": ("#CC79A7", "xxxx"), "forward": ("0.8", ""), "backward": ("0.5", ""), "optimizer": ("0.2", "")}
LANES = {"compute": "compute", "communication": "communication, exposed", "memory": "memory operations"}


def timelines(
    timelines: Sequence[Timeline], *, begin: float = 0.0, milliseconds: float | None = None, most: int = 8
) -> Figure:
    """What each rank's host and device did, a panel each (the first `most`): height is the share of the moment.

    begin, milliseconds: the part that is shown, from the first event on; all of it if not given. Ranks whose clocks are
    not aligned each begin with their own first event.
    """
    from hpc_utils.analyze.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, intervals, phases

    shown = list(timelines)[:most]
    together = all(one.aligned for one in shown)
    firsts = [_bounds(one)[0] for one in shown]
    zeros = [min(firsts)] * len(shown) if together else firsts
    last = max(_bounds(one)[1] - zero for one, zero in zip(shown, zeros, strict=True)) * MS
    end = last if milliseconds is None else min(begin + milliseconds, last)
    edges = np.unique(np.linspace(begin / MS, end / MS, BINS + 1).astype(np.int64))
    kinds = {"compute": (COMPUTE,), "communication": (COMMUNICATION,), "memory": (MEMORY,), "unknown": (UNKNOWN,)}
    names: list[list[str]] = []
    figure, panels = plt.subplots(
        len(shown), 1, figsize=(style.PAGE, 0.75 + len(shown) * (0.95 if len(shown) < 4 else 0.72)), sharex=True, squeeze=False
    )  # fmt: skip
    for axes, one, zero in zip(panels.flat, shown, zeros, strict=True):
        lanes = []
        if _has_phases(one.ranges):
            for phase, (colour, hatch) in PHASES.items():
                _lane(axes, 0, edges, zero, phases.windows(one.ranges, phase), colour, hatch)
            lanes.append("host")
        for lane, chosen in kinds.items():
            if one.ops is None or not np.isin(one.ops.kind, chosen).any():
                continue
            colour, hatch = PARTS[LANES[lane]] if lane in LANES else ("0.6", "")
            _lane(axes, -len(lanes), edges, zero, intervals.union(*one.ops.intervals(*chosen)), colour, hatch)
            lanes.append(lane)
        for start in phases.windows(one.ranges, "step")[0]:
            axes.axvline((start - zero) * MS, color="0.2", linewidth=0.5, linestyle=(0, (2, 2)), zorder=0)
        axes.set_yticks([0.4 - number for number in range(len(lanes))], lanes)
        axes.set_ylim(0.95 - len(lanes), 1.0)
        axes.tick_params(axis="y", length=0, labelsize=6.5)
        axes.grid(visible=False)
        axes.set_title(one.label, loc="left", fontsize=7.5, pad=2)
        names.append(lanes)
    panels.flat[-1].set_xlim(begin, end)
    since = "the first event of any rank" if together else "each rank's first event"
    panels.flat[-1].set_xlabel(f"ms since {since}")
    if any("host" in lanes for lanes in names):
        patches = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, (colour, hatch) in PHASES.items()]  # fmt: skip
        marks = [Line2D([], [], color="0.2", linewidth=0.7, linestyle=(0, (2, 2)), label="a step begins")]
        figure.legend(handles=[*patches, *marks], loc="outside upper right", ncols=5, title=None, fontsize=7)
    return figure


def breakdown(groups: Mapping[str, pd.DataFrame]) -> Figure:
    """Of each rank's span the shares of `PARTS`, as bars; one block of bars a group (before, after).

    `groups`: frames as of `analyze.timeline.breakdown.table`, by what to call them. What is not known is left out, and
    the bar says so.
    """
    rows = [(name, row) for name, frame in groups.items() for row in frame.itertuples()]
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.9 + 0.27 * (len(rows) + len(groups) - 1)))
    places, labels, place, former = [], [], 0.0, None
    for name, row in rows:
        place -= 1.0 if former in (None, name) else 1.6
        former = name
        rank = "" if pd.isna(row.rank) else f"rank {row.rank}"
        device = "" if pd.isna(row.device) else f"GPU {row.device}"
        labels.append(", ".join(filter(None, (name if len(groups) > 1 else "", rank or device))) or name)
        places.append(place)
        left = 0.0
        for part, value in _parts(row).items():
            colour, hatch = PARTS[part]
            axes.barh(
                place, value, left=left, height=0.75, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4
            )
            if value >= 6:
                ink = "black" if part == "otherwise idle" else "white"
                box = {"facecolor": colour, "edgecolor": "none", "pad": 0.8} if hatch else None
                axes.text(
                    left + value / 2,
                    place,
                    f"{value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color=ink,
                    bbox=box,
                )
            left += value
        if pd.isna(row.communication_ns):
            axes.text(101, place, "communication not known", va="center", fontsize=6.5)
    axes.set_yticks(places, labels)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the span (%)")
    axes.grid(axis="y", visible=False)
    patches = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=part) for part, (colour, hatch) in PARTS.items()]  # fmt: skip
    figure.legend(handles=patches, loc="outside upper center", ncols=len(patches), fontsize=7, columnspacing=1.2)
    return figure


def overlap(frame: pd.DataFrame) -> Figure:
    """Of each rank's communication what computation hides and what is exposed; in ms.

    `frame` as of `analyze.timeline.breakdown.table`; with columns wire_ns and waiting_ns (`collectives`), also what of it
    moved bytes and what waited for the slowest rank.
    """
    known = frame[frame.communication_ns.notna()]
    split = "wire_ns" in known and known.wire_ns.notna().any()
    figure, panels = plt.subplots(
        1, 1 + split, figsize=(style.PAGE, 0.9 + 0.25 * len(known)), sharey=True, squeeze=False
    )
    ranks = np.arange(len(known))
    blue, (orange, hatch) = PARTS["compute"][0], PARTS["communication, exposed"]
    pairs = [(known.overlapped_ns, known.exposed_communication_ns, "hidden behind compute", "exposed")]
    if split:
        pairs.append((known.wire_ns, known.waiting_ns, "moving bytes", "waiting for the slowest rank"))
    for axes, (first, second, one, other) in zip(panels.flat, pairs, strict=True):
        first, second = (part.astype(float).to_numpy() * MS for part in (first, second))
        axes.barh(ranks, first, height=0.7, color=blue, label=one)
        axes.barh(
            ranks,
            second,
            left=first,
            height=0.7,
            color=orange,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.4,
            label=other,
        )
        axes.set_xlabel("communication kernels (ms)")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=7)
    panels.flat[0].set_yticks(ranks, [f"rank {rank}" for rank in known["rank"]])
    panels.flat[0].invert_yaxis()
    return figure


def kernels(table: pd.DataFrame, *, most: int = 12) -> Figure:
    """The kernels that took the most time: name, share of all kernel time; the class by colour and hatch.

    `table`: columns name, kind, count, total_ns, share, as of `analyze.timeline.kernels.kernel_table`.
    """
    top = table.nlargest(most, "total_ns").iloc[::-1]
    classes = list(dict.fromkeys(table.sort_values("total_ns", ascending=False)["kind"]))
    looks = {name: _look(number) for number, name in enumerate(classes)}
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.8 + 0.2 * len(top)))
    for place, row in enumerate(top.to_dict("records")):
        colour, hatch = looks[row["kind"]]
        axes.barh(place, 100 * row["share"], height=0.75, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4)
        text = f"{row['total_ns'] * MS:,.1f} ms in {row['count']:,}"
        axes.annotate(
            text, (100 * row["share"], place), (3, 0), textcoords="offset points", va="center", fontsize=6.5
        )
    axes.set_yticks(range(len(top)), [_short(name) for name in top.name], fontsize=6.5)
    axes.set_xlim(0, 118 * float(top.share.max()))
    axes.set_xlabel("share of the time in kernels (%)")
    axes.grid(axis="y", visible=False)
    used = [name for name in classes if name in set(top["kind"])]
    patches = [Patch(facecolor=looks[name][0], hatch=looks[name][1], edgecolor="white", label=name) for name in used]
    axes.legend(handles=patches, loc="lower right", fontsize=7)
    return figure


def utilisation(samples: Mapping[str, pd.DataFrame]) -> Figure:
    """What the monitor saw over time, a colour a device: utilisation, memory, and power where it is known.

    `samples`: columns seconds (since the first), utilisation (%), memory_bytes, power_watts (may be empty), by device.
    """
    power = any(frame.power_watts.notna().any() for frame in samples.values())
    figure, panels = plt.subplots(2 + power, 1, figsize=(style.PAGE, 1.1 + 0.95 * (2 + power)), sharex=True)
    for number, (name, frame) in enumerate(samples.items()):
        colour, line, marker = style.SERIES[number % len(style.SERIES)]
        look = {
            "color": colour,
            "linestyle": line,
            "marker": marker,
            "markersize": 2.5,
            "markevery": max(len(frame) // 12, 1),
        }
        panels[0].plot(frame.seconds, frame.utilisation, **look, label=name)
        panels[1].plot(frame.seconds, frame.memory_bytes / 2**30, **look)
        if power:
            panels[2].plot(frame.seconds, frame.power_watts, **look)
    panels[0].set(ylabel="utilisation (%)", ylim=(0, None))
    panels[1].set(ylabel="memory (GiB)", ylim=(0, None))
    if power:
        panels[2].set(ylabel="power (W)", ylim=(0, None))
    panels[-1].set_xlabel("s since the first sample")
    figure.legend(loc="outside upper center", ncols=min(len(samples), 4), fontsize=7)
    return figure


def _bounds(one: Timeline) -> tuple[int, int]:
    """First and last moment that the timeline shows."""
    starts, ends = [], []
    for events in (one.ops, one.ranges):
        if events is not None and len(events):
            starts.append(int(events.start.min()))
            ends.append(int(events.end.max()))
    return (min(starts), max(ends)) if starts else (0, 0)


def _has_phases(ranges: Ranges) -> bool:
    from hpc_utils.analyze.timeline import phases

    return any(len(phases.windows(ranges, phase)[0]) for phase in PHASES)


def _lane(axes: Axes, row: int, edges: np.ndarray, zero: int, busy: tuple, colour: str, hatch: str) -> None:
    """How much of each moment lies in the union `busy`, as a height above `row`."""
    from hpc_utils.analyze.timeline import intervals

    if not len(busy[0]):
        return
    moments = edges + zero
    share = intervals.overlap(moments[:-1], moments[1:], busy) / np.diff(moments)
    top = row + 0.8 * np.append(share, share[-1])
    axes.fill_between(
        edges * MS, row, top, step="post", facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0
    )


def _parts(row: tuple) -> dict[str, float]:
    """`PARTS` of one row's span, in percent; each moment counts once, as the first of them that it is."""
    span = float(row.span_ns)
    exposed = 0.0 if pd.isna(row.exposed_communication_ns) else float(row.exposed_communication_ns)
    waiting = 0.0 if pd.isna(row.loader_wait_ns) else float(row.loader_wait_ns)
    nanoseconds = {
        "compute": float(row.compute_ns),
        "communication, exposed": exposed,
        "memory operations": max(float(row.busy_ns) - float(row.compute_ns) - exposed, 0.0),
        "waiting for data": waiting,
        "otherwise idle": float(row.idle_ns) - waiting,
    }
    return {name: 100 * value / span for name, value in nanoseconds.items()}


def _look(number: int) -> tuple[str, str]:
    colours = [*style.COLOURS.values(), "0.35", "0.7"]
    return colours[number % len(colours)], ("", "////", "....", "xxxx", "\\\\\\\\", "")[number % 6]


def _short(name: str, most: int = 62) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
