"""Sets of moments: unions and differences of intervals, exact at the clock's resolution.

An interval is [start, end) in int64 ns; a set is a pair of arrays (starts, ends). Every set that a function returns is a
union: sorted, disjoint, neither touching nor empty.
"""

from __future__ import annotations

import numpy as np

Set = tuple[np.ndarray, np.ndarray]


def union(starts: np.ndarray, ends: np.ndarray) -> Set:
    """The moments that are in at least one of the intervals; empty and reversed intervals hold none."""
    nonempty = ends > starts
    starts, ends = starts[nonempty], ends[nonempty]
    if not len(starts):
        return starts, ends
    if np.any(starts[1:] < starts[:-1]):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reached = np.maximum.accumulate(ends)
    first = np.append(True, starts[1:] > reached[:-1])  # nothing before touches it
    last = np.append(first[1:], True)
    return starts[first], reached[last]


def length(intervals: Set) -> int:
    """ns in a union."""
    return int((intervals[1] - intervals[0]).sum())


def overlap(starts: np.ndarray, ends: np.ndarray, intervals: Set) -> np.ndarray:
    """ns of each interval that are in the union `intervals`."""
    return _covered(ends, intervals) - _covered(starts, intervals)


def outside(intervals: Set, excluded: Set) -> int:
    """ns of the union `intervals` that are not in the union `excluded`."""
    return length(intervals) - int(overlap(*intervals, excluded).sum())


def holds(moments: np.ndarray, intervals: Set) -> np.ndarray:
    """Whether each moment is in the union `intervals`."""
    return overlap(moments, moments + 1, intervals) > 0


def difference(intervals: Set, excluded: Set) -> Set:
    """The moments of `intervals` that are not in `excluded`."""
    bounds = np.unique(np.concatenate([*intervals, *excluded]))
    starts, ends = bounds[:-1], bounds[1:]
    chosen = holds(starts, intervals) & ~holds(starts, excluded)
    return union(starts[chosen], ends[chosen])


def _covered(moments: np.ndarray, intervals: Set) -> np.ndarray:
    """ns of the union `intervals` before each moment."""
    starts, ends = intervals
    if not len(starts):
        return np.zeros(len(moments), np.int64)
    before = np.append(0, np.cumsum(ends - starts))
    begun = np.searchsorted(starts, moments, side="right")
    remainder = np.maximum(ends[begun - 1] - moments, 0)  # of the last interval that has begun
    return before[begun] - np.where(begun > 0, remainder, 0)
