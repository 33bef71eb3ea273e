"""The figure of timelines: what each rank's host and device did, and when."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hpc_utils.analyze.profiles import intervals, phases
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, Timeline

from . import style
from .chart import Chart
from .profiles import MS, PARTS, PHASES, patches

BINS = 1200  # across the page: finer than print

LANES = {
    "compute": (COMPUTE, PARTS["compute"]),
    "communication": (COMMUNICATION, PARTS["communication, exposed"]),
    "memory": (MEMORY, PARTS["memory operations"]),
    "unknown": (UNKNOWN, ("0.6", "")),
}
STEP = {"color": "0.2", "linestyle": (0, (2, 2))}


def chart(
    shown: Sequence[Timeline], name: str, what: str, *, runs: Sequence[str] = (), begin: float = 0.0, milliseconds: float | None = None
) -> Chart:  # fmt: skip
    """`timelines` of `what`, with the data drawn; `runs`: ids of the runs that were profiled."""
    part = {"begin": begin, "milliseconds": milliseconds}
    caption = f"What each rank's host and device did{', a part of the profile' if milliseconds else ''}: {what}."
    return Chart(timelines(shown, **part), drawn(shown, **part), name, caption, tuple(runs))


def timelines(
    timelines: Sequence[Timeline], *, begin: float = 0.0, milliseconds: float | None = None, most: int = 8
) -> Figure:
    """What each rank's host and device did, a panel each (the first `most`): height is the share of the moment.

    begin, milliseconds: the part that is shown, from the first event on; all of it if not given. Ranks whose clocks are
    not aligned each begin with their own first event.
    """
    shown = timelines[:most]
    edges, zeros = _moments(shown, begin, milliseconds)
    seen: set[str] = set()
    size = (style.PAGE, 0.75 + len(shown) * (0.95 if len(shown) < 4 else 0.72))
    figure, panels = plt.subplots(len(shown), 1, figsize=size, sharex=True, squeeze=False)
    for axes, one, zero in zip(panels.flat, shown, zeros, strict=True):
        host, device = _host(one, edges + zero), _device(one, edges + zero)
        lanes = [*(["host"] if host else []), *device]
        for phase, share in host.items():
            _lane(axes, 0, edges, share, *PHASES[phase])
        for row, (lane, share) in enumerate(device.items(), bool(host)):
            _lane(axes, -row, edges, share, *LANES[lane][1])
        seen |= host.keys()
        for start in phases.steps(one.ranges)[0]:
            axes.axvline((start - zero) * MS, linewidth=0.5, zorder=0, **STEP)
        axes.set_yticks([0.4 - number for number in range(len(lanes))], lanes)
        axes.set_ylim(0.95 - len(lanes), 1.0)
        axes.tick_params(axis="y", length=0, labelsize=6.5)
        axes.grid(visible=False)
        axes.set_title(one.label, loc="left", fontsize=7.5, pad=2)
    panels.flat[-1].set_xlim(edges[0] * MS, edges[-1] * MS)
    since = "the first event of any rank" if len(set(zeros)) == 1 else "each rank's first event"
    panels.flat[-1].set_xlabel(f"ms since {since}")
    if seen:
        looks = {phase: look for phase, look in PHASES.items() if phase in seen}
        marks = [Line2D([], [], linewidth=0.7, label="a step begins", **STEP)]
        figure.legend(handles=[*patches(looks), *marks], loc="outside upper right", ncols=5, fontsize=7)
    return figure


def drawn(
    timelines: Sequence[Timeline], *, begin: float = 0.0, milliseconds: float | None = None, most: int = 8
) -> pd.DataFrame:
    """What `timelines` draws: from `ms` on until the next row, the share of each moment that each rank's phases and kinds of
    work take."""
    shown = timelines[:most]
    edges, zeros = _moments(shown, begin, milliseconds)
    columns = {"ms": (edges[:-1] * MS).round(4)}
    for one, zero in zip(shown, zeros, strict=True):
        for name, share in (_host(one, edges + zero) | _device(one, edges + zero)).items():
            columns[f"{one.label}: {name}"] = share.round(3)
    frame = pd.DataFrame(columns)
    return frame[frame.drop(columns="ms").diff().ne(0).any(axis=1)]


def _moments(shown: Sequence[Timeline], begin: float, milliseconds: float | None) -> tuple[np.ndarray, list[int]]:
    """The edges of what print resolves, in ns since each timeline's zero; those zeros, all the same on aligned clocks."""
    bounds = [_bounds(one) for one in shown]
    zeros = [first for first, _ in bounds]
    if all(one.aligned for one in shown):
        zeros = [min(zeros)] * len(zeros)
    last = max(last - zero for (_, last), zero in zip(bounds, zeros, strict=True)) * MS
    end = max(last if milliseconds is None else min(begin + milliseconds, last), begin + MS)  # also of an empty one
    return np.unique(np.linspace(begin / MS, end / MS, BINS + 1).astype(np.int64)), zeros


def _host(one: Timeline, moments: np.ndarray) -> dict[str, np.ndarray]:
    """The share of each moment of each phase that is visible."""
    found = {phase: _share(moments, phases.windows(one.ranges, phase)) for phase in phases.PARTS}
    return {str(phase): share for phase, share in found.items() if share.any()}


def _device(one: Timeline, moments: np.ndarray) -> dict[str, np.ndarray]:
    """The share of each moment of each kind of work that the device did at any time."""
    if one.ops is None:
        return {}
    kinds = {lane: kind for lane, (kind, _) in LANES.items() if np.any(one.ops.kind == kind)}
    return {lane: _share(moments, one.ops.union(kind)) for lane, kind in kinds.items()}


def _share(moments: np.ndarray, busy: intervals.Set) -> np.ndarray:
    """The share of each moment that lies in the union `busy`."""
    return intervals.overlap(moments[:-1], moments[1:], busy) / np.diff(moments)


def _bounds(one: Timeline) -> tuple[int, int]:
    """The first and last moment of the timeline."""
    shown = [events for events in (one.ops, one.ranges) if events is not None and len(events)]
    starts, ends = [int(events.start.min()) for events in shown], [int(events.end.max()) for events in shown]
    return min(starts, default=0), max(ends, default=0)


def _lane(axes: Axes, row: int, edges: np.ndarray, share: np.ndarray, colour: str, hatch: str) -> None:
    """`share` of each moment as a height above `row`. Only changes are drawn: the PDF has a third of the size."""
    heights = np.append(share, share[-1]).round(3)
    turns = np.unique(np.append(np.flatnonzero(np.diff(heights, prepend=-1)), len(heights) - 1))
    top = row + 0.8 * heights[turns]
    look = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
    axes.fill_between(edges[turns] * MS, row, top, step="post", **look)
