"""Timelines that tests make up, and the slow way to measure them: one place of an array a nanosecond."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, Ops, Ranges, Timeline

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
    work: Sequence[tuple] = (),
    ranges: Sequence[tuple[int, int, str]] = (),
    *,
    rank: int | None = 0,
    world_size: int | None = 1,
    device: int | None = 0,
    **more: object,
) -> Timeline:
    """`work`: (start, end, kind) and, if given, a dict of further columns, with `name` as text; None: no GPU was seen."""
    ops = None
    if work is not None:
        further = [dict(item[3]) if len(item) > 3 else {} for item in work]
        called = [columns.pop("name", NAMES[item[2]]) for item, columns in zip(work, further, strict=True)]
        groups = [columns.pop("group", None) for columns in further]
        names, known = tuple(dict.fromkeys(called)) or ("",), tuple(dict.fromkeys(g for g in groups if g is not None))
        columns = {key: [one.get(key, -1) for one in further] for key in ("launched", "moved", "pageable")}
        columns["copy"] = [one.get("copy", 0) for one in further]
        ops = Ops.of(
            **{
                key: np.array([item[at] for item in work], np.int64)
                for at, key in enumerate(("start", "end", "kind"))
            },
            name=np.array([names.index(name) for name in called], np.int32),
            names=names,
            group=np.array([known.index(group) if group is not None else -1 for group in groups], np.int32),
            groups=known,
            **{key: np.array(values, np.int64) for key, values in columns.items()},
        )
    marks = Ranges.of(*([mark[place] for mark in ranges] for place in range(3)))
    values = {"source": "made up", "device_name": "NVIDIA A100-SXM4-40GB", "ranges": marks} | more
    return Timeline(rank=rank, world_size=world_size, device=device if ops is not None else None, ops=ops, **values)


def named(ranges: Ranges, name: str) -> tuple[np.ndarray, np.ndarray]:
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
        columns |= {"copy": copy, "pageable": pageable, "moved": draw(st.integers(0, 9))}
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
