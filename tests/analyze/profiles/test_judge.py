"""Verdicts: each bound from a run that is made to have it, and what is said where little is known."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_utils.analyze.profiles.breakdown import NO_COMMUNICATION
from hpc_utils.analyze.profiles.devices import Devices
from hpc_utils.analyze.profiles.judge import judge
from hpc_utils.analyze.profiles.readers import Reports
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, TO_DEVICE, TO_HOST, UNKNOWN, Timeline
from hpc_utils.analyze.profiles.verdict import Bound, Certainty, Verdict

from .timelines import MS, US, anything, timeline

STEP = 10 * MS
ELEMENTWISE = "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def run(*parts: tuple, steps: int = 10, marks: tuple = (), **more: object) -> Timeline:
    """Steps of 10 ms with the same parts in each: (start, end, kind[, columns]) and ranges (start, end, name), in us."""
    work, ranges = [], []
    for number in range(steps):
        off = number * STEP
        for start, end, kind, *columns in parts:
            known = {"launched": off + start * US - 50 * US} | (columns[0] if columns else {})
            work.append((off + start * US, off + end * US, kind, {k: v for k, v in known.items() if v != "unknown"}))
        ranges.append((off, off + STEP, f"ProfilerStep#{number}"))
        ranges += [(off + start * US, off + end * US, name) for start, end, name in marks]
    return timeline(work, ranges, **more)


FEED = ((0, 10, "data"),)


def judged(*timelines: Timeline, **more: object) -> Verdict:
    found = judge(Reports(timelines, **more))
    plain = found.as_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert 0 <= found.confidence <= 1
    assert found.lines()[0].startswith(found.bound)
    assert 2 <= len(found.advice) <= 3
    for one in found.advice:
        assert one.at_most is None or one.at_most >= 1
    return found


def value(found: Verdict, name: str) -> float | None:
    return next(one.value for one in found.evidence if one.name == name)


def test_a_gpu_that_is_busy_computing_is_compute_bound() -> None:
    found = judged(run((20, 9980, COMPUTE), marks=FEED))
    assert found.bound == Bound.COMPUTE
    assert found.certainty == Certainty.HIGH
    assert value(found, "GPU utilisation") > 99
    assert next(one for one in found.evidence if one.name == "GPU utilisation").met
    # 99.6 % of it in GEMMs, and an A100's bf16 peak is 16 times its fp32.
    assert found.advice[0].at_most == pytest.approx(1 / (1 - 0.9964 * 15 / 16), rel=1e-3)


def test_a_gpu_that_idles_is_never_compute_bound() -> None:
    found = judged(run((3000, 6000, COMPUTE, {"launched": "unknown"}), marks=FEED))
    assert found.bound == Bound.NOT_ENOUGH
    assert "idle" in found.reason
    assert found.confidence == 0


def test_communication_on_the_wire() -> None:
    ranks = [run((20, 6000, COMPUTE), (5000, 9980, COMMUNICATION), marks=FEED, rank=r, world_size=2) for r in (0, 1)]
    found = judged(*ranks)
    assert found.bound == Bound.COMMUNICATION
    assert value(found, "exposed communication") == pytest.approx(39.9, abs=0.2)
    assert value(found, "exposed waiting for other ranks") == 0
    assert found.certainty == Certainty.HIGH
    assert found.advice[0].at_most == pytest.approx(1 / (1 - 0.399), rel=0.01)
    alone = judged(ranks[0])
    assert alone.bound == Bound.COMMUNICATION
    assert alone.confidence < found.confidence and "wire time and waiting are not separated" in alone.reason


def _waiting(late: int, ranks: int = 4) -> list[Timeline]:
    """All-reduces that end together; the late one computes 3 ms longer and waits for nobody."""
    return [
        run(
            (20, 9500 if rank == late else 6500, COMPUTE),
            (9500 if rank == late else 6500, 9980, COMMUNICATION),
            marks=FEED,
            rank=rank,
            world_size=ranks,
            aligned=True,
        )
        for rank in range(ranks)
    ]


def test_waiting_for_one_rank() -> None:
    found = judged(*_waiting(late=2))
    assert found.bound == Bound.STRAGGLER
    assert "rank 2" in found.reason and "10 of 10 steps" in found.reason
    assert found.certainty == Certainty.HIGH
    assert "rank 2" in found.advice[0].action and "computes 94.8 ms, the others 64.8" in found.advice[0].action
    waits = value(found, "exposed waiting for other ranks")
    assert waits == pytest.approx(22.6, abs=0.2)  # three of four wait 3 of 9.96 ms
    assert found.advice[0].at_most == pytest.approx(1 / (1 - waits / 100), rel=0.01)
    assert value(found, "exposed on the wire") == pytest.approx(4.8, abs=0.1)


def test_waiting_for_ranks_in_turn_is_less_certain() -> None:
    one = _waiting(late=0, ranks=2)
    other = _waiting(late=1, ranks=2)
    # Half of the steps of each.
    ranks = []
    for first, second in zip(one, other, strict=True):
        early, after = first.ops.where(first.ops.start < 5 * STEP), second.ops.where(second.ops.start >= 5 * STEP)
        work = [
            (s, e, k, {"launched": at}) for o in (early, after) for s, e, k, at in zip(o.start, o.end, o.kind, o.launched, strict=True)
        ]  # fmt: skip
        ranks.append(replace(timeline(work, rank=first.rank, world_size=2), ranges=first.ranges))
    found = judged(*ranks)
    assert found.bound == Bound.STRAGGLER
    assert "no single rank" in found.reason
    assert found.confidence < judged(*one).confidence


def test_a_rank_that_is_late_in_few_steps_is_named_with_doubt() -> None:
    ranks = [replace(one, ops=one.ops.where(one.ops.start < 2 * STEP)) for one in _waiting(late=3)]
    found = judged(*ranks)
    assert found.bound == Bound.STRAGGLER
    assert "too few to rule out chance" in found.reason and "rank 3" in found.advice[0].action
    assert found.confidence < judged(*_waiting(late=3)).confidence


def _two(until: int, earlier: int) -> list[Timeline]:
    """Ranks that compute until then, rank 1 for so many us less, and communicate for the rest of the step."""
    ends = [until - earlier * rank for rank in range(2)]
    return [
        run((20, end, COMPUTE), (end, 9980, COMMUNICATION), marks=FEED, rank=rank, world_size=2)
        for rank, end in enumerate(ends)
    ]


def test_wire_and_waiting_are_not_added_up() -> None:
    # 15 % of the step on the wire and on average 6 % waiting: neither is beyond its threshold, the sum would be.
    found = judged(*_two(8480, 1200))
    assert value(found, "exposed communication") > 20
    assert found.bound == Bound.COMPUTE
    assert "the wire and waiting together" in found.reason and found.certainty != Certainty.HIGH


def test_waiting_less_than_the_wire_takes_is_no_straggler() -> None:
    # 18 % on the wire, on average 12 % waiting, the same rank always the last.
    found = judged(*_two(8180, 2400))
    assert value(found, "exposed waiting for other ranks") > 10
    assert found.bound != Bound.STRAGGLER


def test_of_two_losses_the_larger_one_is_the_verdict() -> None:
    both = judged(run((1500, 6000, COMPUTE), (6000, 9980, COMMUNICATION), marks=((0, 1450, "data"),)))
    assert both.bound == Bound.COMMUNICATION
    assert value(both, "loader idle") > 10
    near = judged(run((3500, 6000, COMPUTE), (6000, 9980, COMMUNICATION), marks=((0, 3450, "data"),)))
    assert near.bound == Bound.COMMUNICATION
    assert "nearly as much is lost waiting for data" in near.reason


def test_waiting_for_the_loader() -> None:
    found = judged(run((4000, 9980, COMPUTE), marks=((0, 3950, "dataloader"),)))
    assert found.bound == Bound.INPUT
    assert value(found, "loader idle") == pytest.approx(37, abs=0.2)
    assert found.certainty == Certainty.HIGH
    assert found.advice[0].at_most == pytest.approx(1 / (1 - value(found, "loader idle") / 100), rel=1e-3)


def test_an_unmarked_loader_is_guessed_from_the_gaps_between_steps() -> None:
    work, ranges = [], []
    for number in range(10):
        off = number * STEP
        work.append((off, off + 6 * MS, COMPUTE, {"launched": off}))
        ranges.append((off, off + 6 * MS, f"step {number}"))
    found = judged(timeline(work, ranges))
    assert found.bound == Bound.INPUT
    assert "nothing is marked" in found.reason
    assert found.certainty != Certainty.HIGH
    assert any("range `data`" in one.action for one in found.advice)


def test_copies_that_nothing_overlaps_are_input() -> None:
    copy = {"copy": TO_DEVICE, "pageable": 1, "moved": 1000}
    found = judged(run((20, 4000, MEMORY, copy), (4000, 9980, COMPUTE), marks=FEED))
    assert found.bound == Bound.INPUT
    assert "pin" in found.advice[0].action and "10 copies are pageable" in found.advice[0].action
    assert not any("loader" in one.action for one in found.advice)
    assert value(found, "pageable copies") == 10
    assert Devices([run((20, 4000, MEMORY, copy), (4000, 9980, COMPUTE))]).shares["moves"] == 0


def test_copies_off_the_device_are_memory() -> None:
    found = judged(run((20, 4000, MEMORY, {"copy": TO_HOST}), (4000, 9980, COMPUTE), marks=FEED))
    assert found.bound == Bound.MEMORY
    assert "copies" in found.advice[0].action


def _brief(launched: str | int) -> Timeline:
    """Kernels of 4 us, each launched 6 us after the one before had ended."""
    parts = []
    for start in range(100, 9900, 10):
        parts.append((start, start + 4, COMPUTE, {"launched": launched}))
    return run(*parts, steps=1, marks=FEED)


def test_brief_kernels_with_gaps_are_launch_bound() -> None:
    found = judged(_brief("unknown"))
    assert found.bound == Bound.LAUNCH
    assert value(found, "median kernel") == 4
    assert value(found, "GPU utilisation") == pytest.approx(40, abs=0.1)
    work = [(i * 10 * US, i * 10 * US + 4 * US, COMPUTE, {"launched": i * 10 * US - 1 * US}) for i in range(1000)]
    confirmed = judged(timeline(work, [(i * MS, i * MS + MS, "step") for i in range(10)]))
    assert confirmed.bound == Bound.LAUNCH
    assert value(confirmed, "idle before late launches") == pytest.approx(50, abs=0.1)
    assert confirmed.confidence > found.confidence


def test_kernels_that_wait_in_the_queue_are_not_launch_bound() -> None:
    work = [(i * 100 * US, i * 100 * US + 40 * US, COMPUTE, {"launched": 0}) for i in range(1000)]
    found = judged(timeline(work, [(i * MS, i * MS + MS, "step") for i in range(100)]))
    assert found.bound == Bound.NOT_ENOUGH


def test_elementwise_kernels_are_memory_bound() -> None:
    found = judged(run((20, 7000, COMPUTE, {"name": ELEMENTWISE}), (7000, 9980, COMPUTE), marks=FEED))
    assert found.bound == Bound.MEMORY
    assert value(found, "kernels with few operations a byte") == pytest.approx(70, abs=0.2)
    assert "fuse" in found.advice[0].action


def _counters(sm: float, dram: float) -> dict[str, list[float]]:
    return {
        "duration_ns": [3.0, 1.0, float("nan")],
        "sm_share": [sm, sm, 1.0],
        "memory_share": [dram, dram, 1.0],
        "dram_share": [dram, dram, 1.0],
        "tensor_share": [0.5, float("nan"), 1.0],
    }


def test_counters_decide_between_arithmetic_and_memory() -> None:
    busy = run((20, 9980, COMPUTE), marks=FEED)
    plain, good = judged(busy), judged(busy, kernels=_counters(0.8, 0.3))
    assert good.bound == Bound.COMPUTE
    assert value(good, "kernel efficiency, of the nearest peak") == pytest.approx(80)
    assert value(good, "kernels' use of tensor cores") == 50
    assert good.confidence > plain.confidence
    poor = judged(busy, kernels=_counters(0.2, 0.1))
    assert poor.bound == Bound.COMPUTE and poor.confidence < good.confidence
    moving = judged(busy, kernels=_counters(0.3, 0.9))
    assert moving.bound == Bound.MEMORY and "disagree" in moving.reason


def test_counters_alone_say_little() -> None:
    found = judged(kernels=_counters(0.3, 0.9))
    assert found.bound == Bound.MEMORY and found.certainty != Certainty.HIGH
    assert "rest of the run was not measured" in found.reason
    assert judged(kernels=_counters(0.3, 0.2)).bound == Bound.NOT_ENOUGH
    assert judged(kernels=_counters(float("nan"), 0.2)).bound == Bound.NOT_ENOUGH


# Without a GPU


def test_counters_beside_the_phases_of_their_run_are_reported() -> None:
    """The run's own clocks decide; what was counted is not silently dropped."""
    seconds = {"data": 0.0, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    found = judged(phases=seconds, kernels=_counters(0.3, 0.9))
    assert found.bound == Bound.COMPUTE
    assert value(found, "kernels' use of DRAM bandwidth") == pytest.approx(90)
    assert value(found, "forward phase, of the step") == pytest.approx(30)


def test_phases_of_a_run_decide_where_no_gpu_was_seen() -> None:
    seconds = {"data": 0.3, "forward": 0.2, "backward": 0.4, "optimizer": 0.1}
    found = judged(phases=seconds)
    assert found.bound == Bound.INPUT
    assert found.certainty == Certainty.MEDIUM
    assert value(found, "data phase, of the step") == pytest.approx(30)
    assert judged(phases=seconds | {"data": 0.01}).bound == Bound.COMPUTE
    assert judged(phases=seconds | {"data": 0.0, "communication": 0.5}).bound == Bound.COMMUNICATION


def test_a_runs_own_records_tell_of_the_loader_what_the_profile_does_not() -> None:
    told = {"data": 0.2, "forward": 0.8}
    busy = run((20, 9980, COMPUTE))
    assert value(judged(busy), "loader idle") is None
    found = judged(busy, phases=told)
    assert value(found, "loader idle") == pytest.approx(20)
    assert any("own records" in remark for remark in found.remarks)
    marked = judged(run((20, 9980, COMPUTE), marks=FEED), phases=told)
    assert value(marked, "loader idle") < 1


def test_ranges_of_the_host_decide_where_no_gpu_was_seen() -> None:
    marks = [(0, 10, "step"), (0, 4, "data"), (4, 6, "forward"), (6, 9, "backward"), (9, 10, "optimizer")]
    found = judged(timeline(None, marks))
    assert found.bound == Bound.INPUT and value(found, "data phase, of the step") == pytest.approx(40)
    many = [
        timeline(None, [(0, 2, "forward"), (2, 14, "backward"), (0, 0, "data")], rank=r, world_size=2) for r in (0, 1)
    ]
    found = judged(*many)
    assert found.bound == Bound.COMMUNICATION and found.certainty == Certainty.LOW
    assert judged(replace(many[0], world_size=1)).bound == Bound.COMPUTE


def test_phases_are_shares_of_the_step_and_not_of_what_is_marked() -> None:
    """PyTorch marks loader and optimizer by itself: between them the step does what nobody marked."""
    marks = [(0, 100, "ProfilerStep#1"), (0, 3, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")]
    marks.append((97, 100, "Optimizer.step#SGD.step"))
    found = judged(timeline(None, marks))
    assert value(found, "data phase, of the step") == pytest.approx(3)
    assert value(found, "in no phase, of the step") == pytest.approx(94)
    assert found.bound == Bound.NOT_ENOUGH
    assert judged(timeline(None, [*marks, (3, 97, "forward")])).bound == Bound.COMPUTE
    assert judged(timeline(None, [*marks, (10, 17, "data")])).bound == Bound.INPUT


@pytest.mark.parametrize(
    "timelines",
    [
        [],
        [timeline([])],
        [timeline(None)],
        [timeline([(5, 5, COMPUTE)])],
        [timeline([]), timeline(None, rank=1)],
        [timeline([(0, 10, COMPUTE), (90, 100, COMPUTE)])],  # two kernels are not many
        [timeline(None, [(0, 10, "step")])],
    ],
)
def test_too_little_is_not_enough(timelines: list[Timeline]) -> None:
    found = judged(*timelines)
    assert found.bound == Bound.NOT_ENOUGH
    assert found.confidence == 0
    assert found.reason


@settings(max_examples=60)
@given(st.lists(anything(), max_size=3), st.booleans())
def test_whatever_was_seen_there_is_a_verdict(drawn: list, world: bool) -> None:
    found = judged(*(timeline(w, r, rank=n, world_size=4 if world else None) for n, (w, r) in enumerate(drawn)))
    assert isinstance(found.bound, Bound)
    assert len(found.advice) <= 3


# How sure


def test_confidence_falls_with_what_is_missing() -> None:
    sure = judged(run((20, 9980, COMPUTE), marks=FEED)).confidence
    near = judged(run((1800, 9980, COMPUTE), marks=FEED)).confidence
    few = judged(run((20, 9980, COMPUTE), marks=FEED, steps=1)).confidence
    unmarked = judged(run((20, 9980, COMPUTE))).confidence
    graphs = judged(run((20, 5000, COMPUTE), (5000, 9980, UNKNOWN), marks=FEED)).confidence
    unseen = judged(run((20, 9980, COMPUTE), marks=FEED, world_size=2))
    twice = judged(*[run((20, 9980, COMPUTE), marks=FEED)] * 2).confidence
    assert all(less < sure for less in (near, few, unmarked, graphs, unseen.confidence, twice))
    assert NO_COMMUNICATION in unseen.remarks
    assert "1 of 2 ranks" in unseen.reason and "communication was not recorded" in unseen.reason


def test_ranks_without_a_gpu_are_left_out_and_named() -> None:
    found = judged(run((20, 9980, COMPUTE), marks=FEED), timeline(None, rank=1))
    assert any("rank 1" in remark for remark in found.remarks)


def test_the_verdict_needs_no_pandas() -> None:
    code = (
        "import sys, hpc_utils.analyze.profiles.judge; print(sorted({'pandas', 'scipy', 'torch'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
