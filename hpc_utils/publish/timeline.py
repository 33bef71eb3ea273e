"""The picture of a timeline: what each rank's host and device did, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from . import style
from .profile_figures import MS, PARTS

if TYPE_CHECKING:
    import pandas as pd

    from hpc_utils.analyze.timeline import Ranges, Timeline

BINS = 1200  # across the page: finer than print

PHASES = {"data": ("#CC79A7", "xxxx"), "forward": ("0.8", ""), "backward": ("0.5", ""), "optimizer": ("0.2", "")}
LANES = {"compute": "compute", "communication": "communication, exposed", "memory": "memory operations"}


def timelines(
    timelines: Sequence[Timeline], *, begin: float = 0.0, milliseconds: float | None = None, most: int = 8
) -> Figure:
    """What each rank's host and device did, a panel each (the first `most`): height is the share of the moment.

    begin, milliseconds: the part that is shown, from the first event on; all of it if not given. Ranks whose clocks are
    not aligned each begin with their own first event.
    """
    from hpc_utils.analyze.timeline import phases

    shown = list(timelines)[:most]
    edges, zeros, together = _moments(shown, begin, milliseconds)
    seen: set[str] = set()
    figure, panels = plt.subplots(
        len(shown), 1, figsize=(style.PAGE, 0.75 + len(shown) * (0.95 if len(shown) < 4 else 0.72)), sharex=True, squeeze=False
    )  # fmt: skip
    for axes, one, zero in zip(panels.flat, shown, zeros, strict=True):
        lanes = []
        if _has_phases(one.ranges):
            for phase, share in _host(one, edges + zero).items():
                _lane(axes, 0, edges, share, *PHASES[phase])
                seen.add(phase)
            lanes.append("host")
        for lane, share in _device(one, edges + zero).items():
            colour, hatch = PARTS[LANES[lane]] if lane in LANES else ("0.6", "")
            _lane(axes, -len(lanes), edges, share, colour, hatch)
            lanes.append(lane)
        for start in phases.steps(one).start:
            axes.axvline((start - zero) * MS, color="0.2", linewidth=0.5, linestyle=(0, (2, 2)), zorder=0)
        axes.set_yticks([0.4 - number for number in range(len(lanes))], lanes)
        axes.set_ylim(0.95 - len(lanes), 1.0)
        axes.tick_params(axis="y", length=0, labelsize=6.5)
        axes.grid(visible=False)
        axes.set_title(one.label, loc="left", fontsize=7.5, pad=2)
    panels.flat[-1].set_xlim(edges[0] * MS, edges[-1] * MS)
    since = "the first event of any rank" if together else "each rank's first event"
    panels.flat[-1].set_xlabel(f"ms since {since}")
    if seen:
        looks = [(name, look) for name, look in PHASES.items() if name in seen]
        patches = [
            Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, (colour, hatch) in looks
        ]
        marks = [Line2D([], [], color="0.2", linewidth=0.7, linestyle=(0, (2, 2)), label="a step begins")]
        figure.legend(handles=[*patches, *marks], loc="outside upper right", ncols=5, title=None, fontsize=7)
    return figure


def drawn(
    timelines: Sequence[Timeline], *, begin: float = 0.0, milliseconds: float | None = None, most: int = 8
) -> pd.DataFrame:
    """What `timelines` draws: from `ms` on until the next row, the share of each moment that each rank's phases and kinds of
    work take."""
    import pandas as pd

    shown = list(timelines)[:most]
    edges, zeros, _ = _moments(shown, begin, milliseconds)
    columns = {"ms": (edges[:-1] * MS).round(4)}
    for one, zero in zip(shown, zeros, strict=True):
        for name, share in (_host(one, edges + zero) | _device(one, edges + zero)).items():
            columns[f"{one.label}: {name}"] = share.round(3)
    frame = pd.DataFrame(columns)
    return frame[frame.drop(columns="ms").diff().ne(0).any(axis=1)]


def _moments(
    shown: Sequence[Timeline], begin: float, milliseconds: float | None
) -> tuple[np.ndarray, list[int], bool]:
    """The edges of what one can tell apart in print, ns since each timeline's zero; those zeros; whether it is one clock."""
    together = all(one.aligned for one in shown)
    firsts = [_bounds(one)[0] for one in shown]
    zeros = [min(firsts)] * len(shown) if together else firsts
    last = max(_bounds(one)[1] - zero for one, zero in zip(shown, zeros, strict=True)) * MS
    end = max(last if milliseconds is None else min(begin + milliseconds, last), begin + MS)  # an empty one too
    return np.unique(np.linspace(begin / MS, end / MS, BINS + 1).astype(np.int64)), zeros, together


def _host(one: Timeline, moments: np.ndarray) -> dict[str, np.ndarray]:
    """Of each phase that shows, the share of each moment."""
    from hpc_utils.analyze.timeline import phases

    found = {phase: _share(moments, phases.windows(one.ranges, phase)) for phase in PHASES}
    return {phase: share for phase, share in found.items() if share.any()}


def _device(one: Timeline, moments: np.ndarray) -> dict[str, np.ndarray]:
    """Of each kind of work that the device did at any time, the share of each moment."""
    from hpc_utils.analyze.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, intervals

    if one.ops is None:
        return {}
    kinds = {"compute": COMPUTE, "communication": COMMUNICATION, "memory": MEMORY, "unknown": UNKNOWN}
    return {
        lane: _share(moments, intervals.union(*one.ops.intervals(kind)))
        for lane, kind in kinds.items()
        if np.any(one.ops.kind == kind)
    }


def _share(moments: np.ndarray, busy: tuple) -> np.ndarray:
    """How much of each moment lies in the union `busy`."""
    from hpc_utils.analyze.timeline import intervals

    return intervals.overlap(moments[:-1], moments[1:], busy) / np.diff(moments)


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


def _lane(axes: Axes, row: int, edges: np.ndarray, share: np.ndarray, colour: str, hatch: str) -> None:
    """`share` of each moment as a height above `row`."""
    heights = np.append(share, share[-1]).round(3)
    turns = np.flatnonzero(
        np.diff(heights, prepend=-1) != 0
    )  # between them nothing changes: a PDF of a third the size
    turns = np.unique(np.append(turns, len(heights) - 1))
    axes.fill_between(
        edges[turns] * MS, row, row + 0.8 * heights[turns], step="post", facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0
    )  # fmt: skip
