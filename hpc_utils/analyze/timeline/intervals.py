"""Sets of moments: unions, intersections and differences of intervals, exact at the clock's resolution.

An interval is [start, end) in int64 ns; a set of them is a pair of arrays (starts, ends). What any function here returns
is a union: sorted, disjoint, neither touching nor empty.
"""

from __future__ import annotations

import numpy as np

Set = tuple[np.ndarray, np.ndarray]

EMPTY: Set = (np.empty(0, np.int64), np.empty(0, np.int64))


def union(starts: np.ndarray, ends: np.ndarray) -> Set:
    """The moments that lie in at least one of the intervals; empty and reversed ones hold none."""
    some = ends > starts
    starts, ends = starts[some], ends[some]
    if not len(starts):
        return EMPTY
    if np.any(starts[1:] < starts[:-1]):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reached = np.maximum.accumulate(ends)
    fresh = np.flatnonzero(starts[1:] > reached[:-1]) + 1  # one that nothing before it touches
    first, last = np.concatenate([[0], fresh]), np.concatenate([fresh - 1, [len(starts) - 1]])
    return starts[first], reached[last]


def length(one: Set) -> int:
    """ns in a union."""
    return int((one[1] - one[0]).sum())


def _covered(moments: np.ndarray, one: Set) -> np.ndarray:
    """ns of the union `one` before each of `moments`."""
    starts, ends = one
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    place = np.searchsorted(starts, moments, side="right")
    inside = np.where(place > 0, np.minimum(moments, ends[place - 1]) - starts[place - 1], 0) if len(starts) else 0
    return before[np.maximum(place - 1, 0)] + inside if len(starts) else np.zeros(len(moments), np.int64)


def overlap(starts: np.ndarray, ends: np.ndarray, one: Set) -> np.ndarray:
    """Of each interval the ns that lie in the union `one`."""
    return _covered(ends, one) - _covered(starts, one)


def intersection(one: Set, other: Set) -> Set:
    """The moments of both unions."""
    bounds = np.unique(np.concatenate([*one, *other]))
    return _chosen(bounds, _holds(bounds[:-1], one) & _holds(bounds[:-1], other))


def difference(one: Set, other: Set) -> Set:
    """The moments of `one` that are not in `other`."""
    bounds = np.unique(np.concatenate([*one, *other]))
    return _chosen(bounds, _holds(bounds[:-1], one) & ~_holds(bounds[:-1], other))


def gaps(one: Set, start: int, end: int) -> Set:
    """What the union leaves of [start, end)."""
    return difference((np.array([start]), np.array([end])) if end > start else EMPTY, one)


def _holds(moments: np.ndarray, one: Set) -> np.ndarray:
    """Whether each moment lies in the union."""
    place = np.searchsorted(one[0], moments, side="right") - 1
    found = place >= 0
    found[found] = moments[found] < one[1][place[found]]
    return found


def _chosen(bounds: np.ndarray, chosen: np.ndarray) -> Set:
    return union(bounds[:-1][chosen], bounds[1:][chosen]) if len(bounds) > 1 else EMPTY
