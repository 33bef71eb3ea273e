"""The chart of timelines: the activity of each rank's host and device over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hpc_utils.analyze.profiles import intervals, phases
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, Timeline

from . import drawing, style
from .chart import Chart
from .profiles import MS

BINS = 1200  # across the page: finer than print
MOST = 8  # ranks
LANES = {"compute": COMPUTE, "communication": COMMUNICATION, "memory": MEMORY, "unknown": UNKNOWN}  # of a device


def chart(
    rank_timelines: Sequence[Timeline], name: str, description: str, *, begin: float = 0.0,
    milliseconds: float | None = None, runs: Sequence[str] = (),
) -> Chart:  # fmt: skip
    """What each rank's host and device did, a panel for each of the first eight; the height is the share of each moment.

    description: of the work, in words. begin, milliseconds: the part that is shown, from the first event on; by
    default all. Ranks whose clocks are not aligned begin with their own first event. runs: ids of the profiled runs.
    """
    caption = (
        f"What each rank's host and device did{', a part of the profile' if milliseconds else ''}: {description}."
    )
    if not rank_timelines:
        return Chart(None, pd.DataFrame(), name, caption, ())
    frame = shares(rank_timelines[:MOST], begin, milliseconds)
    return Chart(_panels(rank_timelines[:MOST], frame), frame, name, caption, tuple(runs))


def _panels(rank_timelines: Sequence[Timeline], frame: pd.DataFrame) -> Figure:
    """A panel for each rank, with its lanes in `frame` (as of `shares`)."""
    size = (style.PAGE, 0.75 + 0.8 * len(rank_timelines))
    figure, panels = plt.subplots(len(rank_timelines), 1, figsize=size, sharex=True, squeeze=False)
    for axes, timeline, zero in zip(panels.flat, rank_timelines, _zeros(rank_timelines), strict=True):
        label = timeline.label
        rank_lanes = [column.removeprefix(f"{label}: ") for column in frame if column.startswith(f"{label}: ")]
        rows = list(dict.fromkeys("host" if lane in phases.PARTS else lane for lane in rank_lanes))
        for lane in rank_lanes:
            _lane(axes, rows, lane, frame.ms, frame[f"{label}: {lane}"])
        for start in phases.steps(timeline.ranges)[0]:
            look = {"color": "0.2", "linewidth": 0.5, "linestyle": (0, (2, 2)), "zorder": 0}
            axes.axvline((start - zero) * MS, label="a step begins", **look)
        axes.set_yticks([0.4 - row for row in range(len(rows))], rows)
        axes.set_ylim(0.95 - len(rows), 1)
        axes.grid(visible=False)
        axes.set_title(label, loc="left", pad=2)
    panels.flat[-1].set(xlabel="time since the first event (ms)", xlim=(frame.ms.iloc[0], frame.ms.iloc[-1]))
    return drawing.finished(figure)


def _lane(axes: Axes, rows: list[str], lane: str, ms: pd.Series, share: pd.Series) -> None:
    """`share` as a height above the lane's row. Only changes are drawn: the PDF has a third of the size."""
    host = lane not in rows
    row = -rows.index("host" if host else lane)
    turns = share.diff().ne(0) | (share.index == share.index[-1])
    look = style.fill(lane) | {"linewidth": 0, "label": lane if host else None}
    axes.fill_between(ms[turns], row, row + 0.8 * share[turns], step="post", **look)


def shares(rank_timelines: Sequence[Timeline], begin: float = 0.0, milliseconds: float | None = None) -> pd.DataFrame:
    """The share of each rank's phases and kinds of work (`<rank>: <lane>`) from `ms` on, until the next row."""
    zeros = _zeros(rank_timelines)
    last = max(_bounds(timeline)[1] - zero for timeline, zero in zip(rank_timelines, zeros, strict=True)) * MS
    end = max(last if milliseconds is None else min(begin + milliseconds, last), begin + MS)  # also of an empty one
    edges = np.unique(np.linspace(begin / MS, end / MS, BINS + 1).astype(np.int64))
    columns = {"ms": (edges * MS).round(4)}
    for timeline, zero in zip(rank_timelines, zeros, strict=True):
        moments = edges + zero
        for lane, busy in _lanes(timeline):
            share = (intervals.overlap(moments[:-1], moments[1:], busy) / np.diff(moments)).round(3)
            if share.any() or lane in LANES:
                columns[f"{timeline.label}: {lane}"] = np.append(share, share[-1])
    frame = pd.DataFrame(columns)
    changes = frame.drop(columns="ms").diff().ne(0).any(axis=1)
    return frame[changes | (frame.index == frame.index[-1])]


def _lanes(timeline: Timeline) -> Iterator[tuple[str, intervals.Set]]:
    """The lanes of a host and of its device, with the time that they are busy."""
    for phase in phases.PARTS:
        yield str(phase), phases.windows(timeline.ranges, phase)
    for lane, kind in LANES.items():
        if timeline.ops is not None and (timeline.ops.kind == kind).any():
            yield lane, timeline.ops.union(kind)


def _zeros(rank_timelines: Sequence[Timeline]) -> list[int]:
    """Each timeline's time 0, ns: its first event, or that of all if their clocks are aligned."""
    zeros = [_bounds(timeline)[0] for timeline in rank_timelines]
    return [min(zeros)] * len(zeros) if all(timeline.aligned for timeline in rank_timelines) else zeros


def _bounds(timeline: Timeline) -> tuple[int, int]:
    """The first and last moment of the timeline."""
    event_tables = [events for events in (timeline.ops, timeline.ranges) if events is not None and len(events)]
    first = min((int(events.start.min()) for events in event_tables), default=0)
    last = max((int(events.end.max()) for events in event_tables), default=0)
    return first, last
