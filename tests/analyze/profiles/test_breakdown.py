"""A device's time in parts, against the same counted nanosecond by nanosecond."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

from hpc_utils.analyze.profiles import breakdown
from hpc_utils.analyze.profiles.breakdown import NO_COMMUNICATION, PARTLY_UNKNOWN
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN

from .timelines import END, MS, anything, moments, timeline


def _of(work: list[tuple], *kinds: int) -> np.ndarray:
    return moments([item[:2] for item in work if not kinds or item[2] in kinds])


@given(anything())
def test_every_number_is_what_counting_gives(drawn: tuple) -> None:
    work, ranges = drawn
    with patch.object(breakdown, "LATENCY", 5):
        found = breakdown.breakdown(timeline(work, ranges))
    assert (PARTLY_UNKNOWN in found["remarks"]) == _of(work, UNKNOWN).any()
    busy, compute, communication = _of(work), _of(work, COMPUTE), _of(work, COMMUNICATION)
    real = [item for item in work if item[1] > item[0]]
    phases = [mark for mark in ranges if mark[2] != "else"]
    first, last = min((w[0] for w in work + phases), default=0), max((w[1] for w in real), default=0)
    idle = moments([(first, last)]) & ~busy
    data = moments([r[:2] for r in ranges if r[2] == "data"])
    if real:
        assert found["span_ns"] == last - first
        assert found["idle_ns"] == idle.sum()
        assert found["loader_wait_ns"] == ((idle & data).sum() if data.any() else None)
        # No gap is long enough to be outside of everything.
        assert found["otherwise_idle_ns"] == found["short_gaps_ns"] == (idle & ~data).sum()
    assert found["busy_ns"] == busy.sum()
    assert found["compute_ns"] == compute.sum()
    assert found["communication_ns"] == communication.sum()
    assert found["exposed_communication_ns"] == (communication & ~compute).sum()
    assert found["overlapped_ns"] == (communication & compute).sum()
    assert found["memory_ns"] == _of(work, MEMORY).sum()
    assert found["unknown_ns"] == _of(work, UNKNOWN).sum()
    late = np.zeros(END, bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], idle.astype(int), [0]])))
    for start, end in edges.reshape(-1, 2):
        asked = next(item for item in sorted(work, key=lambda item: item[0]) if item[0] == end)[3]["launched"]
        late[start:end] = asked >= 0 and asked >= min(start, end - 5)
    if real and any(item[3]["launched"] >= 0 for item in work):
        assert found["launched_late_ns"] == (late & ~data).sum()
    copies = [item[3]["pageable"] for item in work if item[2] == MEMORY and item[3]["copy"]]
    known = not copies or max(copies) >= 0
    assert found["pageable_copies"] == (copies.count(1) if known else None)


def test_without_a_gpu_all_of_it_is_unknown_and_a_device_that_did_nothing_is_zero() -> None:
    found = breakdown.breakdown(timeline(None, [(0, 5, "data")], rank=3))
    assert found == dict.fromkeys(breakdown.COLUMNS) | {"rank": 3, "remarks": ()}
    found = breakdown.breakdown(timeline([], [(0, 5, "data")]))
    assert [found[f"{name}_ns"] for name in ("span", "busy", "idle", "loader_wait")] == [0, 0, 0, 0]


@pytest.mark.parametrize(("world", "several", "known"), [(1, False, True), (2, False, False), (None, True, False)])
def test_several_devices_without_communication_kernels_do_not_communicate_for_zero_time(
    world, several, known
) -> None:
    found = breakdown.breakdown(timeline([(0, 10, COMPUTE)], world_size=world), several=several)
    values = {found[f"{name}_ns"] for name in ("communication", "exposed_communication", "overlapped")}
    assert values == ({0} if known else {None})
    assert (NO_COMMUNICATION in found["remarks"]) is not known
    assert found["compute_ns"] == 10


@pytest.mark.parametrize("device", [0, None])
def test_the_wait_for_the_first_batch_is_one_for_data(device: int | None) -> None:
    marks = [(start, start + end, name) for start in (10, 20) for end, name in ((8, "data"), (10, "step"))]
    work = [(start + 8, start + 10, COMPUTE) for start in (10, 20)]
    found = breakdown.breakdown(timeline(work, [(0, 5, "start up"), *marks], device=device))
    assert (found["span_ns"], found["loader_wait_ns"], found["busy_ns"]) == (20, 16, 4)


def test_two_devices_are_several_and_the_table_knows_what_is_not_known() -> None:
    work = [(0, 10, COMPUTE)]
    frame = breakdown.breakdown_table([timeline(work, device=0), timeline(work, device=1), timeline(None, rank=1)])
    assert frame.compute_ns.tolist()[:2] == [10, 10]
    assert frame.communication_ns.isna().all()
    assert frame.span_ns.isna().tolist() == [False, False, True]


def test_a_long_gap_outside_of_all_phases_is_distinguished() -> None:
    work = [(0, MS, COMPUTE), (4 * MS, 5 * MS, COMPUTE), (5 * MS + 10, 6 * MS, COMPUTE)]
    steps = [(0, MS, "step 0"), (4 * MS, 6 * MS, "step 1")]
    found = breakdown.breakdown(timeline(work, steps))
    names = ("between_steps_ns", "otherwise_idle_ns", "short_gaps_ns", "loader_wait_ns")
    assert [found[name] for name in names] == [3 * MS, 10, 10, None]
    ended = breakdown.breakdown(timeline([*work, (9 * MS, 10 * MS, COMPUTE)], steps))
    assert [ended[name] for name in names[:2]] == [3 * MS, 3 * MS + 10], "the gap after the last step is between none"
    # Most of the step is in no range: that means nothing.
    unmarked = breakdown.breakdown(timeline(work, [(0, MS, "optimizer")]))
    assert [unmarked[name] for name in names[:2]] == [None, 3 * MS + 10]
