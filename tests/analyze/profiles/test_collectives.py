"""Collectives across ranks: matched, split into wire and waiting, and the rank that the others wait for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_utils.analyze.profiles import collectives
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, Timeline

from .timelines import ALL_REDUCE, MS, anything, moments, timeline

BROADCAST = "ncclDevKernel_Broadcast_RING_LL"


def ranks_of(
    arrivals: np.ndarray, wire: int, shift: int = 0, *, step: bool = False, **columns: object
) -> list[Timeline]:
    """One timeline a column of `arrivals` (rows, ranks) in ns: an all-reduce a row, over when the last one has come and the
    wire's time has gone. Each rank's clock is off by its number times `shift`."""
    ends = arrivals.max(axis=1) + wire
    found = []
    for rank, starts in enumerate(arrivals.T):
        off = rank * shift
        work = [(s + off, e + off, COMMUNICATION, columns) for s, e in zip(starts, ends, strict=True)]
        bounds = [*(starts + off - 1), ends[-1] + off]
        marks = [(begin, end, "step") for begin, end in itertools.pairwise(bounds)] if step else []
        found.append(timeline(work, marks, rank=rank, world_size=arrivals.shape[1], aligned=not shift))
    return found


@given(
    st.lists(st.lists(st.integers(0, 900), min_size=3, max_size=3), min_size=1, max_size=8),
    st.integers(1, 50),
    st.integers(0, 5),
)
def test_wire_and_waiting_are_recovered_whatever_the_clocks(rows: list, wire: int, shift: int) -> None:
    arrivals = np.array(rows) + 1000 * np.arange(len(rows))[:, None]
    found = collectives.match(ranks_of(arrivals, wire, shift * 100))
    late = arrivals.max(axis=1)[:, None]
    assert found.wire_ns.tolist() == [wire] * len(rows)
    assert found.waiting_ns.tolist() == (late - arrivals).tolist()
    frame = collectives.collectives_table(ranks_of(arrivals, wire, shift * 100))
    assert frame.waiting_ns.tolist() == (late - arrivals).sum(axis=0).tolist()
    assert frame.wire_ns.tolist() == [wire * len(rows)] * 3


@settings(max_examples=60)
@given(st.lists(anything(kinds=(COMPUTE, COMMUNICATION)), min_size=2, max_size=3))
def test_exposed_parts_are_what_counting_gives(drawn: list) -> None:
    timelines = [timeline(work, rank=rank) for rank, (work, _) in enumerate(drawn)]
    found = collectives.match(timelines)
    for column, (work, _) in enumerate(drawn):
        part = found.taking_part[:, column]
        start, end, wire = found.start[part, column], found.end[part, column], found.wire_ns[part]
        free = ~moments([item[:2] for item in work if item[2] == COMPUTE])
        on_wire = moments(list(zip(end - wire, end, strict=True)))
        waiting = moments(list(zip(start, end - wire, strict=True))) & ~on_wire
        expected = (on_wire & free).sum(), (waiting & free).sum()
        assert collectives.exposed(timelines[column], found, column) == expected


def _late(rank: int, of: int = 12, ranks: int = 4, by: int = 500) -> np.ndarray:
    """Arrivals with some noise, one rank always behind."""
    noise = np.random.default_rng(0).integers(0, 50, (of, ranks))
    noise[:, rank] += by
    return noise + 10_000 * np.arange(of)[:, None]


@pytest.mark.parametrize("step", [False, True])
def test_the_straggler_is_named(step: bool) -> None:
    ranks = ranks_of(_late(2), 100, step=step)
    found = collectives.straggler(collectives.match(ranks))
    assert (found.column, found.label, found.last, found.of) == (2, "rank 2, GPU 0", 12, 12)
    assert found.per == ("step" if step else "collective")
    assert found.systematic and found.caused == 1.0 and 450 <= found.behind_ns <= 550


def test_ranks_that_take_turns_and_few_turns_are_chance() -> None:
    noise = np.random.default_rng(1).integers(0, 500, (40, 4)) + 10_000 * np.arange(40)[:, None]
    assert not collectives.straggler(collectives.match(ranks_of(noise, 100))).systematic
    found = collectives.straggler(collectives.match(ranks_of(_late(1, of=3, ranks=2), 100)))
    assert (found.last, found.of, found.systematic) == (3, 3, False)


def test_ties_name_no_straggler() -> None:
    arrivals = 10_000 * np.arange(20)[:, None] + np.array([[500, 500, 0]])
    assert collectives.straggler(collectives.match(ranks_of(arrivals, 100))) is None


def test_several_collectives_of_a_step_count_once() -> None:
    marks = timeline([], [(0, 145_000, "step"), (145_000, 400_000, "step")]).ranges
    timelines = [replace(one, ranges=marks) for one in ranks_of(_late(1, of=30, ranks=2), 100)]
    found = collectives.straggler(collectives.match(timelines))
    assert (found.of, found.per, found.systematic) == (2, "step", False)


def test_waiting_in_two_collectives_at_once_is_waited_once() -> None:
    """Rank 0 waits 500 ns in each of two broadcasts, the second of which starts 100 ns later."""
    timelines = []
    for rank, starts in enumerate(((0, 100), (500, 600))):
        work = [
            (step + start, step + start + end, COMMUNICATION, {"name": f"gloo:{kind}"})
            for step in range(0, 20_000, 2_000)
            for kind, start, end in (
                ("broadcast", starts[0], 510 - 500 * rank),
                ("all_reduce", starts[1], 510 - 500 * rank),
            )
        ]
        marks = [(step, step + 1_900, "step") for step in range(0, 20_000, 2_000)]
        timelines.append(timeline(work, marks, rank=rank, world_size=2))
    found = collectives.straggler(collectives.match(timelines))
    assert (found.column, found.of, found.behind_ns) == (1, 10, 600)


def test_sends_and_receives_are_no_collectives() -> None:
    pair = {"name": "ncclDevKernel_SendRecv"}
    timelines = [timeline([(0, 90, COMMUNICATION, pair)], rank=0), timeline([(0, 10, COMMUNICATION, pair)], rank=1)]
    found = collectives.match(timelines)
    assert len(found) == 0
    assert collectives.exposed(timelines[0], found, 0) == (0, 0)


def test_kinds_and_groups_are_matched_apart() -> None:
    def one(rank: int, group: str, early: int) -> Timeline:
        work = [
            (0, 10, COMMUNICATION, {"group": group}),
            (20 - early, 40, COMMUNICATION, {"group": group, "name": BROADCAST}),
        ]
        return timeline(work, rank=rank)

    found = collectives.match([one(0, "a", 0), one(1, "a", 5), one(2, "b", 0), one(3, "b", 7)])
    assert sorted(found.keys) == sorted((group, name) for group in "ab" for name in (ALL_REDUCE, BROADCAST))
    assert found.waiting_ns[found.keys.index(("b", BROADCAST))].tolist() == [0, 0, 0, 7]


def test_different_numbers_are_reported_and_matched_by_their_ends_on_one_clock() -> None:
    whole, part = ranks_of(_late(0, of=6, ranks=2), 100)
    part = replace(part, ops=part.ops.where(np.arange(6) >= 2))  # its profile began later
    found = collectives.match([whole, part])
    assert found.start[:, 0].tolist() == whole.ops.start[2:].tolist()
    assert found.wire_ns.tolist() == [100] * 4
    assert "4 to 6" in found.remarks[0]
    apart = collectives.match([replace(whole, aligned=False), replace(part, aligned=False)])
    assert "may be wrong" in apart.remarks[0]
    assert apart.start[:, 0].tolist() == whole.ops.start[:4].tolist()


def test_missing_ranks_and_collectives_of_one_rank_are_reported() -> None:
    both, alone = (0, 10, COMMUNICATION), (20, 30, COMMUNICATION, {"name": BROADCAST})
    found = collectives.match([timeline([both, alone]), timeline([both], rank=1)])
    assert len(found) == 1 and "one rank only" in found.remarks[0]
    assert "3 of 4 ranks" in collectives.match(ranks_of(_late(1), MS)[:3]).remarks[0]
    nothing = [timeline(None, rank=0), timeline(None, rank=1)]
    assert len(collectives.match(nothing)) == 0 and collectives.straggler(collectives.match(nothing)) is None
    assert collectives.collectives_table(nothing).waiting_ns.tolist() == [0, 0]
