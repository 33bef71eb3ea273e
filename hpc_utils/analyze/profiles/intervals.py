"""Sets of moments: unions and differences of intervals, exact at the clock's resolution.

An interval is [start, end) in int64 ns; a set is a pair of arrays (starts, ends). Every set that a function returns is a
union: sorted, disjoint, neither touching nor empty.
"""

from __future__ import annotations

import numpy as np

Set = tuple[np.ndarray, np.ndarray]


def union(starts: np.ndarray, ends: np.ndarray) -> Set:
    """The moments that are in at least one of the intervals; empty and reversed intervals hold none."""
    some = ends > starts
    starts, ends = starts[some], ends[some]
    if not len(starts):
        return starts, ends
    if np.any(starts[1:] < starts[:-1]):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reached = np.maximum.accumulate(ends)
    first = np.append(True, starts[1:] > reached[:-1])  # nothing before touches it
    last = np.append(first[1:], True)
    return starts[first], reached[last]


def length(one: Set) -> int:
    """ns in a union."""
    return int((one[1] - one[0]).sum())


def overlap(starts: np.ndarray, ends: np.ndarray, one: Set) -> np.ndarray:
    """ns of each interval that are in the union `one`."""
    return _covered(ends, one) - _covered(starts, one)


def outside(one: Set, other: Set) -> int:
    """ns of the union `one` that are not in the union `other`."""
    return length(one) - int(overlap(*one, other).sum())


def holds(moments: np.ndarray, one: Set) -> np.ndarray:
    """Whether each moment is in the union `one`."""
    return overlap(moments, moments + 1, one) > 0


def difference(one: Set, other: Set) -> Set:
    """The moments of `one` that are not in `other`."""
    bounds = np.unique(np.concatenate([*one, *other]))
    starts, ends = bounds[:-1], bounds[1:]
    chosen = holds(starts, one) & ~holds(starts, other)
    return union(starts[chosen], ends[chosen])


def _covered(moments: np.ndarray, one: Set) -> np.ndarray:
    """ns of the union `one` before each moment."""
    starts, ends = one
    if not len(starts):
        return np.zeros(len(moments), np.int64)
    before = np.append(0, np.cumsum(ends - starts))
    begun = np.searchsorted(starts, moments, side="right")
    rest = np.maximum(ends[begun - 1] - moments, 0)  # of the last interval that has begun
    return before[begun] - np.where(begun > 0, rest, 0)
