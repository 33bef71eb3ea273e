"""A device's time in parts, against the same counted nanosecond by nanosecond."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given

from hpc_utils.analyze.profiles import breakdown
from hpc_utils.analyze.profiles.breakdown import KEYS, NO_COMMUNICATION, PARTLY_UNKNOWN
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN

from .timelines import END, MS, anything, moments, timeline


def _of(work: list[tuple], *kinds: int) -> np.ndarray:
    return moments([item[:2] for item in work if not kinds or item[2] in kinds])


@given(anything())
def test_every_number_is_what_counting_gives(drawn: tuple) -> None:
    work, ranges = drawn
    found = breakdown.breakdown(timeline(work, ranges))
    busy, compute, communication = _of(work), _of(work, COMPUTE), _of(work, COMMUNICATION)
    first, last = min((w[0] for w in work), default=0), max((w[1] for w in work), default=0)
    inside = moments([(first, last)])
    data = moments([r[:2] for r in ranges if r[2] == "data"])
    marked = any(r[2] == "data" and r[1] > r[0] for r in ranges)
    assert found.span_ns == last - first
    assert found.busy_ns == busy.sum()
    assert found.idle_ns == (inside & ~busy).sum()
    assert found.compute_ns == compute.sum()
    assert found.communication_ns == communication.sum()
    assert found.exposed_communication_ns == (communication & ~compute).sum()
    assert found.overlapped_ns == (communication & compute).sum()
    assert found.memory_ns == _of(work, MEMORY).sum()
    assert found.unknown_ns == _of(work, UNKNOWN).sum()
    assert found.loader_wait_ns == ((inside & ~busy & data).sum() if marked else None)


@given(anything())
def test_pageable_copies_are_counted(drawn: tuple) -> None:
    work = [item for item in drawn[0] if item[2] == MEMORY]
    found = breakdown.breakdown(timeline(drawn[0]))
    copies = [item for item in work if item[3]["copy"]]
    if copies and all(item[3]["pageable"] < 0 for item in copies):
        assert found.pageable_copies is None
        return
    slow = [item for item in copies if item[3]["pageable"] == 1]
    assert found.pageable_copies == len(slow)


def test_as_json_has_the_named_fields_in_order_and_plain_numbers() -> None:
    found = breakdown.breakdown(timeline([(0, 10, COMPUTE), (5, 12, COMMUNICATION)], [(12, 15, "data")])).as_json()
    assert tuple(found) == KEYS
    assert json.loads(json.dumps(found)) == found
    assert found["exposed_communication_ns"] == 2


def test_without_a_gpu_all_of_it_is_unknown() -> None:
    found = breakdown.breakdown(timeline(None, [(0, 5, "data")], rank=3))
    assert found.as_json() == dict.fromkeys(KEYS) | {"rank": 3}


def test_a_device_that_did_nothing_is_zero_and_not_unknown() -> None:
    found = breakdown.breakdown(timeline([], [(0, 5, "data")]))
    assert (found.span_ns, found.busy_ns, found.idle_ns, found.loader_wait_ns) == (0, 0, 0, 0)


@pytest.mark.parametrize(("world", "several", "known"), [(1, False, True), (2, False, False), (None, True, False)])
def test_several_devices_without_communication_kernels_do_not_communicate_for_zero_time(
    world, several, known
) -> None:
    found = breakdown.breakdown(timeline([(0, 10, COMPUTE)], world_size=world), several=several)
    values = {found.communication_ns, found.exposed_communication_ns, found.overlapped_ns}
    assert values == ({0} if known else {None})
    assert (NO_COMMUNICATION in found.remarks) is not known
    assert found.compute_ns == 10


def test_graphs_traced_whole_are_busy_and_reported() -> None:
    found = breakdown.breakdown(timeline([(0, 4, UNKNOWN), (6, 8, COMPUTE)]))
    assert (found.busy_ns, found.unknown_ns, found.idle_ns) == (6, 4, 2)
    assert PARTLY_UNKNOWN in found.remarks


def test_several_are_ordered_and_two_devices_of_one_process_are_several() -> None:
    work = [(0, 10, COMPUTE)]
    given = [timeline(work, rank=r, device=d, world_size=None) for r, d in ((None, 0), (1, 0), (0, 1), (0, 0))]
    found = breakdown.breakdowns(given)
    assert [(one.rank, one.device) for one in found] == [(0, 0), (0, 1), (1, 0), (None, 0)]
    assert {one.communication_ns for one in found} == {None}
    assert breakdown.breakdowns(given[:1])[0].communication_ns == 0


def test_the_table_knows_what_is_not_known() -> None:
    frame = breakdown.table([timeline([(0, 10, COMPUTE)], world_size=2), timeline(None, rank=1, world_size=2)])
    assert frame.compute_ns.tolist()[0] == 10
    assert frame.communication_ns.isna().all()
    assert frame.span_ns.isna().tolist() == [False, True]


@given(anything())
def test_idle_time_is_distinguished(drawn: tuple) -> None:
    work, ranges = drawn
    found = breakdown.breakdown(timeline(work, ranges))
    busy = _of(work)
    inside = moments([(min((w[0] for w in work), default=0), max((w[1] for w in work), default=0))])
    data = moments([r[:2] for r in ranges if r[2] == "data"])
    left = inside & ~busy & ~data  # no gap is long enough to be outside of everything
    assert found.otherwise_idle_ns == found.short_gaps_ns == left.sum()
    assert found.otherwise_idle_ns + (found.loader_wait_ns or 0) == found.idle_ns
    late = np.zeros(END, bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (inside & ~busy).astype(int), [0]])))
    launched = sorted((item for item in work), key=lambda item: item[0])
    for start, end in edges.reshape(-1, 2):
        asked = next(item for item in launched if item[0] == end)[3]["launched"]
        late[start : max(start, min(asked, end))] = True
    if any(item[3]["launched"] >= 0 for item in work):
        assert found.launched_late_ns == (late & ~data).sum()


def test_a_long_gap_outside_of_all_phases_is_distinguished() -> None:
    work = [(0, MS, COMPUTE), (4 * MS, 5 * MS, COMPUTE), (5 * MS + 10, 6 * MS, COMPUTE)]
    steps = [(0, MS, "step 0"), (4 * MS, 6 * MS, "step 1")]
    found = breakdown.breakdown(timeline(work, steps))
    assert (found.between_steps_ns, found.otherwise_idle_ns, found.short_gaps_ns) == (3 * MS, 10, 10)
    assert found.loader_wait_ns is None
    unmarked = breakdown.breakdown(
        timeline(work, [(0, MS, "optimizer")])
    )  # most of the step is in no range: that means nothing
    assert (unmarked.between_steps_ns, unmarked.otherwise_idle_ns) == (None, 3 * MS + 10)
