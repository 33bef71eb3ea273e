"""The chart of timelines: the activity of each rank's host and device over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from hpc_utils.analyze.profiles import intervals, phases
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, Timeline

from . import style
from .chart import Chart
from .drawing import Look
from .profiles import MS, PARTS, PHASES

BINS = 1200  # across the page: finer than print
LANES: dict[str, tuple[int, Look]] = {
    "compute": (COMPUTE, PARTS["compute"]),
    "communication": (COMMUNICATION, PARTS["communication, exposed"]),
    "memory": (MEMORY, PARTS["memory operations"]),
    "unknown": (UNKNOWN, ("0.6", "")),
}
STEP = {"color": "0.2", "linestyle": (0, (2, 2))}


class _Rank(NamedTuple):
    """One timeline as drawn. `zero`: its time 0, ns; `host`, `device`: the share of each bin, by phase and by lane."""

    timeline: Timeline
    zero: int
    host: dict[str, np.ndarray]
    device: dict[str, np.ndarray]


def chart(shown: Sequence[Timeline], name: str, what: str, *, runs: Sequence[str] = (), **part: Any) -> Chart:
    """`timelines` of `what`, with the data drawn; `runs`: ids of the profiled runs; `part`: as `timelines` takes it."""
    caption = f"What each rank's host and device did{', a part of the profile' if part.get('milliseconds') else ''}: {what}."
    if not shown:
        return Chart(None, pd.DataFrame(), name, caption, ())
    return Chart(timelines(shown, **part), drawn(shown, **part), name, caption, tuple(runs))


def timelines(
    timelines: Sequence[Timeline], *, begin: float = 0.0, milliseconds: float | None = None, most: int = 8
) -> Figure:
    """What each rank's host and device did, a panel for each of the first `most`; the height is the share of each moment.

    begin, milliseconds: the part that is shown, from the first event on; by default all. Ranks whose clocks are not aligned
    begin with their own first event.
    """
    edges, ranks = _binned(timelines[:most], begin, milliseconds)
    size = (style.PAGE, 0.75 + len(ranks) * (0.95 if len(ranks) < 4 else 0.72))
    figure, panels = plt.subplots(len(ranks), 1, figsize=size, sharex=True, squeeze=False)
    for axes, one in zip(panels.flat, ranks, strict=True):
        lanes = [*(["host"] if one.host else []), *one.device]
        for phase, share in one.host.items():
            _lane(axes, 0, edges, share, PHASES[phase])
        for row, (lane, share) in enumerate(one.device.items(), bool(one.host)):
            _lane(axes, -row, edges, share, LANES[lane][1])
        for start in phases.steps(one.timeline.ranges)[0]:
            axes.axvline((start - one.zero) * MS, linewidth=0.5, zorder=0, **STEP)
        axes.set_yticks([0.4 - number for number in range(len(lanes))], lanes)
        axes.set_ylim(0.95 - len(lanes), 1.0)
        axes.tick_params(axis="y", length=0, labelsize=6.5)
        axes.grid(visible=False)
        axes.set_title(one.timeline.label, loc="left", fontsize=7.5, pad=2)
    last = panels.flat[-1]
    last.set_xlim(edges[0] * MS, edges[-1] * MS)
    since = "the first event of any rank" if len({one.zero for one in ranks}) == 1 else "each rank's first event"
    last.set_xlabel(f"ms since {since}")
    if looks := {phase: look for phase, look in PHASES.items() if any(phase in one.host for one in ranks)}:
        handles = [Patch(facecolor=c, hatch=h, edgecolor="white", label=phase) for phase, (c, h) in looks.items()]
        handles.append(Line2D([], [], linewidth=0.7, label="a step begins", **STEP))
        figure.legend(handles=handles, loc="outside upper right", ncols=5, fontsize=7)
    return figure


def drawn(
    timelines: Sequence[Timeline], *, begin: float = 0.0, milliseconds: float | None = None, most: int = 8
) -> pd.DataFrame:
    """What `timelines` draws: the share of each rank's phases and kinds of work from `ms` on, until the next row."""
    edges, ranks = _binned(timelines[:most], begin, milliseconds)
    columns = {"ms": (edges[:-1] * MS).round(4)}
    for one in ranks:
        columns |= {
            f"{one.timeline.label}: {name}": share.round(3) for name, share in (one.host | one.device).items()
        }
    frame = pd.DataFrame(columns)
    return frame[frame.drop(columns="ms").diff().ne(0).any(axis=1)]


def _binned(shown: Sequence[Timeline], begin: float, milliseconds: float | None) -> tuple[np.ndarray, list[_Rank]]:
    """The edges of the bins that print resolves, in ns since each timeline's zero, and the ranks; aligned clocks share one zero."""
    bounds = [_bounds(one) for one in shown]
    zeros = [first for first, _ in bounds]
    if all(one.aligned for one in shown):
        zeros = [min(zeros)] * len(zeros)
    last = max(last - zero for (_, last), zero in zip(bounds, zeros, strict=True)) * MS
    end = max(last if milliseconds is None else min(begin + milliseconds, last), begin + MS)  # also of an empty one
    edges = np.unique(np.linspace(begin / MS, end / MS, BINS + 1).astype(np.int64))
    ranks = []
    for one, zero in zip(shown, zeros, strict=True):
        moments = edges + zero
        host = {str(phase): _share(moments, phases.windows(one.ranges, phase)) for phase in phases.PARTS}
        host = {phase: share for phase, share in host.items() if share.any()}
        kinds = (
            {}
            if one.ops is None
            else {lane: kind for lane, (kind, _) in LANES.items() if (one.ops.kind == kind).any()}
        )
        ranks.append(
            _Rank(one, zero, host, {lane: _share(moments, one.ops.union(kind)) for lane, kind in kinds.items()})
        )
    return edges, ranks


def _share(moments: np.ndarray, busy: intervals.Set) -> np.ndarray:
    """The share of each bin that is in the union `busy`."""
    return intervals.overlap(moments[:-1], moments[1:], busy) / np.diff(moments)


def _bounds(one: Timeline) -> tuple[int, int]:
    """The first and last moment of the timeline."""
    shown = [events for events in (one.ops, one.ranges) if events is not None and len(events)]
    starts, ends = [int(events.start.min()) for events in shown], [int(events.end.max()) for events in shown]
    return min(starts, default=0), max(ends, default=0)


def _lane(axes: Axes, row: int, edges: np.ndarray, share: np.ndarray, look: Look) -> None:
    """`share` of each bin as a height above `row`. Only changes are drawn: the PDF has a third of the size."""
    heights = np.append(share, share[-1]).round(3)
    turns = np.unique(np.append(np.flatnonzero(np.diff(heights, prepend=-1)), len(heights) - 1))
    axes.fill_between(edges[turns] * MS, row, row + 0.8 * heights[turns], step="post",
                      facecolor=look[0], hatch=look[1], edgecolor="white", linewidth=0)  # fmt: skip
