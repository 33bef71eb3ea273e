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
    from hpc_utils.analyze.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, intervals, phases

    shown = list(timelines)[:most]
    together = all(one.aligned for one in shown)
    firsts = [_bounds(one)[0] for one in shown]
    zeros = [min(firsts)] * len(shown) if together else firsts
    last = max(_bounds(one)[1] - zero for one, zero in zip(shown, zeros, strict=True)) * MS
    end = max(last if milliseconds is None else min(begin + milliseconds, last), begin + MS)  # an empty one too
    edges = np.unique(np.linspace(begin / MS, end / MS, BINS + 1).astype(np.int64))
    kinds = {"compute": (COMPUTE,), "communication": (COMMUNICATION,), "memory": (MEMORY,), "unknown": (UNKNOWN,)}
    seen: set[str] = set()
    figure, panels = plt.subplots(
        len(shown), 1, figsize=(style.PAGE, 0.75 + len(shown) * (0.95 if len(shown) < 4 else 0.72)), sharex=True, squeeze=False
    )  # fmt: skip
    for axes, one, zero in zip(panels.flat, shown, zeros, strict=True):
        lanes = []
        if _has_phases(one.ranges):
            for phase, (colour, hatch) in PHASES.items():
                if _lane(axes, 0, edges, zero, phases.windows(one.ranges, phase), colour, hatch):
                    seen.add(phase)
            lanes.append("host")
        for lane, chosen in kinds.items():
            if one.ops is None or not np.isin(one.ops.kind, chosen).any():
                continue
            colour, hatch = PARTS[LANES[lane]] if lane in LANES else ("0.6", "")
            _lane(axes, -len(lanes), edges, zero, intervals.union(*one.ops.intervals(*chosen)), colour, hatch)
            lanes.append(lane)
        for start in phases.steps(one).start:
            axes.axvline((start - zero) * MS, color="0.2", linewidth=0.5, linestyle=(0, (2, 2)), zorder=0)
        axes.set_yticks([0.4 - number for number in range(len(lanes))], lanes)
        axes.set_ylim(0.95 - len(lanes), 1.0)
        axes.tick_params(axis="y", length=0, labelsize=6.5)
        axes.grid(visible=False)
        axes.set_title(one.label, loc="left", fontsize=7.5, pad=2)
    panels.flat[-1].set_xlim(begin, end)
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


def _lane(axes: Axes, row: int, edges: np.ndarray, zero: int, busy: tuple, colour: str, hatch: str) -> bool:
    """How much of each moment lies in the union `busy`, as a height above `row`; whether any does."""
    from hpc_utils.analyze.timeline import intervals

    moments = edges + zero
    share = intervals.overlap(moments[:-1], moments[1:], busy) / np.diff(moments)
    if not share.any():
        return False
    top = row + 0.8 * np.append(share, share[-1])
    axes.fill_between(
        edges * MS, row, top, step="post", facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0
    )
    return True
