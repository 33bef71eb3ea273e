"""Timelines that tests make up, and the slow way to measure them: one place of an array a nanosecond."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, Events, Timeline, coded

END = 60  # ns; all that `anything` makes up lies before
MS, US = 1_000_000, 1_000

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
NAMES = {
    COMPUTE: "ampere_sgemm_128x64_nn",
    COMMUNICATION: ALL_REDUCE,
    MEMORY: "Memcpy HtoD (Pageable -> Device)",
    UNKNOWN: "graph",
}


def timeline(
    work: Sequence[tuple] | None = (), ranges: Sequence[tuple[int, int, str]] = (), *, rank: int | None = 0, **more: object
) -> Timeline:  # fmt: skip
    """`work`: (start, end, kind) and, if given, a dict of further columns, with `name` and `group` as text; None: no GPU was
    seen."""
    ops = None
    if work is not None:
        rows = [(*item, {})[3] for item in work]
        name, names = coded(row.get("name", NAMES[item[2]]) for item, row in zip(work, rows, strict=True))
        group, groups = coded(row.get("group", "") for row in rows)
        columns = {key: [row.get(key, -1) for row in rows] for key in ("launched", "pageable")}
        columns |= {key: [item[place] for item in work] for place, key in enumerate(("start", "end", "kind"))}
        columns |= {"copy": [row.get("copy", 0) for row in rows], "name": name}
        columns["group"] = [number if "group" in row else -1 for number, row in zip(group, rows, strict=True)]
        ops = Events.of(**columns, names=names or ("",), groups=groups)
    values = {"source": "made up", "device_name": "NVIDIA A100-SXM4-40GB", "world_size": 1, "device": 0} | more
    marks = Events.ranges(*([mark[place] for mark in ranges] for place in range(3)))
    if ops is None:
        values["device"] = None
    return Timeline(rank=rank, ops=ops, ranges=marks, **values)


def named(ranges: Events, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends) of the ranges of this name."""
    chosen = np.array([ranges.names[number] == name for number in ranges.name], bool)
    return ranges.start[chosen], ranges.end[chosen]


def moments(pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """(END,) bool: whether a nanosecond lies in one of the [start, end)."""
    found = np.zeros(END, bool)
    for start, end in pairs:
        found[start:end] = True
    return found


_starts, _lengths = st.integers(0, END - 20), st.integers(0, 19)


@st.composite
def _work(draw: st.DrawFn, kinds: Sequence[int]) -> tuple:
    start, launched = draw(_starts), draw(st.integers(-1, END - 1))
    copy, pageable = draw(st.sampled_from([(0, -1), (1, 1), (1, 0), (2, 1), (8, -1)]))
    kind = draw(st.sampled_from(kinds))
    columns = {"launched": launched}
    if kind == MEMORY:
        columns |= {"copy": copy, "pageable": pageable}
    return start, start + draw(_lengths), kind, columns


@st.composite
def _range(draw: st.DrawFn) -> tuple[int, int, str]:
    start = draw(_starts)
    return start, start + draw(_lengths), draw(st.sampled_from(["step", "data", "forward", "ProfilerStep#3", "else"]))


@st.composite
def anything(
    draw: st.DrawFn, kinds: Sequence[int] = (COMPUTE, COMMUNICATION, MEMORY, UNKNOWN)
) -> tuple[list[tuple], list[tuple[int, int, str]]]:
    """`work` and `ranges` for `timeline`, of any kind and overlap, empty ones among them."""
    return draw(st.lists(_work(kinds), max_size=12)), draw(st.lists(_range(), max_size=6))
