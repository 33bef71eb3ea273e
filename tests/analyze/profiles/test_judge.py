"""Verdicts: each bound from a run that is made to have it, and how the confidence falls with what is missing."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_utils.analyze.profiles.breakdown import NO_COMMUNICATION
from hpc_utils.analyze.profiles.judge import judge
from hpc_utils.analyze.profiles.readers import Reports
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, TO_DEVICE, TO_HOST, UNKNOWN, Timeline
from hpc_utils.analyze.profiles.verdict import Bound, Certainty, Verdict

from .timelines import MS, US, anything, timeline

STEP = 10 * MS
ELEMENTWISE = "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
FEED = ((0, 10, "data"),)


def run(*parts: tuple, steps: int = 10, marks: tuple = FEED, **more: object) -> Timeline:
    """Steps of 10 ms with the same parts in each: (start, end, kind[, columns]) and ranges (start, end, name), in us."""
    work, ranges = [], []
    for number in range(steps):
        off = number * STEP
        for start, end, kind, *columns in parts:
            known = {"launched": off + start * US - 50 * US} | (columns[0] if columns else {})
            work.append((off + start * US, off + end * US, kind, known))
        ranges.append((off, off + STEP, f"ProfilerStep#{number}"))
        ranges += [(off + start * US, off + end * US, name) for start, end, name in marks]
    return timeline(work, ranges, **more)


BUSY = (20, 9980, COMPUTE)


def judged(*timelines: Timeline, **more: object) -> Verdict:
    found = judge(Reports(timelines, **more))
    plain = found.as_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert 0 <= found.confidence <= 1
    assert found.lines()[0].startswith(found.bound)
    assert 1 <= len(found.advice) <= 4
    assert all(one.at_most is None or one.at_most >= 1 for one in found.advice)
    return found


def value(found: Verdict, name: str) -> float | None:
    return next(one.value for one in found.evidence if one.name == name)


COPY = {"copy": TO_DEVICE, "pageable": 1}
BRIEF = [(start, start + 4, COMPUTE, {"launched": -1}) for start in range(100, 9900, 10)]


@pytest.mark.parametrize(
    ("parts", "marks", "bound", "certainty", "lost", "try_first"),
    [
        # 99.6 % of it in GEMMs, and an A100's TF32 peak is 8 times its fp32.
        ([BUSY], FEED, Bound.COMPUTE, Certainty.HIGH, 0.9964 * 7 / 8, "16-bit"),
        ([(4000, 9980, COMPUTE)], ((0, 3950, "dataloader"),), Bound.INPUT, Certainty.HIGH, 0.395, "loader workers"),
        ([(20, 4000, MEMORY, COPY), (4000, 9980, COMPUTE)], FEED, Bound.INPUT, Certainty.HIGH, 0.4, "pin the host"),
        ([(20, 4000, MEMORY, {"copy": TO_HOST}), (4000, 9980, COMPUTE)], FEED, Bound.MEMORY, Certainty.HIGH, 0.4, "copies"),
        ([(20, 7000, COMPUTE, {"name": ELEMENTWISE}), (7000, 9980, COMPUTE)], FEED, Bound.MEMORY, None, 0.7, "fuse"),
        (BRIEF, FEED, Bound.LAUNCH, None, 0.6, "one CUDA graph"),
        ([(3000, 6000, COMPUTE, {"launched": -1})], FEED, Bound.NOT_ENOUGH, Certainty.LOW, None, "launches"),
    ],
)  # fmt: skip
def test_what_one_device_is_bound_by(parts, marks, bound, certainty, lost, try_first) -> None:
    found = judged(run(*parts, marks=marks))
    assert found.bound == bound
    assert certainty in (None, found.certainty)
    assert any(try_first in one.action for one in found.advice)
    if lost:
        assert found.advice[0].at_most == pytest.approx(1 / (1 - lost), rel=0.02)
    else:
        assert found.confidence == 0 and "idle" in found.reason


def test_input_that_is_pinned_is_not_told_to_be_pinned() -> None:
    """Of 6 ms of copies a step 1 ms is from memory that is not pinned."""
    pinned, pageable = ({"copy": TO_DEVICE, "pageable": number} for number in (0, 1))
    found = judged(run((20, 5020, MEMORY, pinned), (5020, 6020, MEMORY, pageable), (6020, 9980, COMPUTE), marks=FEED))
    at_most = {one.action.partition(" ")[0]: one.at_most for one in found.advice}
    assert found.bound == Bound.INPUT
    assert at_most["pin"] == pytest.approx(1 / (1 - 0.1), rel=0.01)
    assert at_most["copy"] == pytest.approx(1 / (1 - 0.6), rel=0.01)


def test_a_single_long_gap_is_less_certain_than_one_a_step() -> None:
    """Each idles for four fifths of 100 ms."""
    starts = [start * MS for start in (*range(10), *range(90, 100))]
    single = judged(timeline([(start, start + MS, COMPUTE, {"launched": start}) for start in starts]))
    each = judged(run((8000, 9980, COMPUTE), marks=()))
    assert single.bound == each.bound == Bound.HOST
    assert single.confidence < each.confidence / 2


def test_a_few_operations_show_nothing() -> None:
    found = judged(timeline([(0, US, MEMORY), (20 * MS, 21 * MS, COMPUTE, {"launched": 20 * MS})]))
    assert found.bound == Bound.NOT_ENOUGH and "1 operation" in found.reason
    copies = judged(run((20, 4000, MEMORY, COPY), (8000, 9000, MEMORY, COPY)))
    assert copies.bound == Bound.NOT_ENOUGH and "0 operations" in copies.reason


def test_the_next_largest_loss_has_advice_too() -> None:
    """In 42 % of the time the device is idle between short kernels, in 30 % it waits for data."""
    found = judged(run(*BRIEF[300:], marks=((0, 3000, "dataloader"),)))
    assert found.bound == Bound.LAUNCH
    assert any("loader workers" in one.action for one in found.advice)


def kernels(every: int, length: int, ahead: int, device: int | None = 0) -> Timeline:
    """Ten steps of 100 kernels, each launched `ahead` of its start."""
    work = [(n * every, n * every + length, COMPUTE, {"launched": max(0, n * every - ahead)}) for n in range(1000)]
    marks = [(n * 100 * every, (n + 1) * 100 * every, "step") for n in range(10)]
    return timeline(work, marks, device=device)


def test_launches_that_are_late_confirm_that_launches_limit_and_a_full_queue_does_not() -> None:
    confirmed = judged(kernels(10 * US, 4 * US, US))
    assert confirmed.bound == Bound.LAUNCH and confirmed.confidence > judged(run(*BRIEF)).confidence
    assert value(confirmed, "idle before late launches") == pytest.approx(60, abs=0.1)
    assert judged(kernels(100 * US, 40 * US, 10 * MS)).bound == Bound.NOT_ENOUGH


def test_a_step_graph_saves_at_most_the_gaps_that_late_launches_end() -> None:
    """A kernel of 2 of every 8 us starts 5 us after the call that launches it: the latency after the call is lost, too."""

    def advised(name: str = "NVIDIA A100-SXM4-80GB", **config: object) -> dict[str, float]:
        found = judged(replace(kernels(8 * US, 2 * US, 5 * US), device_name=name), config=config)
        assert found.bound == Bound.LAUNCH and "launch times" not in found.reason
        return {one.action.partition(" (")[0]: one.at_most for one in found.advice}

    graph = "the whole step as one CUDA graph"
    assert advised()[graph] == pytest.approx(1 / (1 - 0.75), rel=0.01)
    before_the_gap = judged(kernels(8 * US, 4 * US, 5 * US))
    assert value(before_the_gap, "idle before late launches") == pytest.approx(50, abs=0.1)
    assert graph in advised(compile="reduce-overhead"), "parts of the step are still launched late"
    assert graph not in advised(step_graph=True)
    assert graph not in advised("CPU"), "a CPU has no graphs"


def test_results_that_are_read_leave_a_gap_that_no_graph_closes() -> None:
    """Every 200 us the host waits for a copy, and launches the next kernel 49 us later."""
    read = [(start + 100, start + 101, MEMORY, {"copy": TO_HOST}) for start in range(100, 9900, 200)]
    work = [(start, start + 100, COMPUTE) for start in range(100, 9900, 200)]
    found = judged(run(*sorted(work + read)))
    assert found.bound == Bound.LAUNCH
    assert ".item()" in found.advice[0].action and found.advice[0].at_most == pytest.approx(1 / (1 - 0.485), rel=0.05)
    assert not any("graph" in one.action for one in found.advice)


def test_a_kernel_is_measured_by_its_makers_tool() -> None:
    found = judged(
        run((20, 9980, COMPUTE, {"name": "Cijk_Alik_Bljk_BBS_BH_MT128x128x32"}), device_name="AMD Instinct MI250X")
    )
    assert any("ROCm" in one.action for one in found.advice) and not any(
        "Nsight" in one.action for one in found.advice
    )


def test_a_cpu_launches_nothing() -> None:
    """Its operators start when they are called, so no launch is late."""
    parts = [(start, start + 4, COMPUTE) for start in range(100, 9900, 10)]
    found = judged(run(*parts, device=None, device_name="CPU"))
    assert found.bound == Bound.LAUNCH and value(found, "idle before late launches") is None


def test_communication_on_the_wire() -> None:
    ranks = [run((20, 6000, COMPUTE), (5000, 9980, COMMUNICATION), rank=r, world_size=2) for r in (0, 1)]
    found = judged(*ranks)
    assert (found.bound, found.certainty) == (Bound.COMMUNICATION, Certainty.HIGH)
    assert value(found, "exposed communication") == pytest.approx(39.9, abs=0.2)
    assert value(found, "exposed waiting for other ranks") == 0
    assert found.advice[0].at_most == pytest.approx(1 / (1 - 0.399), rel=0.01)
    alone = judged(ranks[0])
    assert alone.bound == Bound.COMMUNICATION and alone.confidence < found.confidence


def _waiting(late: int, ranks: int = 4, steps: int = 10) -> list[Timeline]:
    """All-reduces that end together; the late one computes 3 ms longer and waits for no rank."""
    ends = [9500 if rank == late else 6500 for rank in range(ranks)]
    return [
        run((20, end, COMPUTE), (end, 9980, COMMUNICATION), steps=steps, rank=rank, world_size=ranks)
        for rank, end in enumerate(ends)
    ]


def test_waiting_for_one_rank() -> None:
    found = judged(*_waiting(late=2))
    assert (found.bound, found.certainty) == (Bound.STRAGGLER, Certainty.HIGH)
    assert "rank 2" in found.reason and "computes 94.8 ms, the others 64.8" in found.advice[0].action
    waits = value(found, "exposed waiting for other ranks")
    assert waits == pytest.approx(22.6, abs=0.2)  # three of four wait 3 of 9.96 ms
    assert found.advice[0].at_most == pytest.approx(9.96 / 6.96, rel=0.01), "without it, each step is 3 ms shorter"
    work = (20, 6500, COMPUTE), (6500, 9500, MEMORY), (9500, 9980, COMMUNICATION)
    copying = run(*work, steps=10, rank=2, world_size=4)
    unexplained = judged(*(copying if one.rank == 2 else one for one in _waiting(late=2)))
    assert "other jobs on its node" in unexplained.advice[0].action
    few = judged(*_waiting(late=2, steps=3))
    assert few.bound == Bound.STRAGGLER and few.confidence < found.confidence


@pytest.mark.parametrize("mark", ["data", "tokenize"])
def test_what_delays_all_ranks_is_bounded_by_the_time_of_all(mark: str) -> None:
    """One of four ranks is idle for the first 6 of 10 ms, in which the others wait."""
    work = (6000, 8000, COMPUTE), (8000, 9980, COMMUNICATION)
    ranks = [run((20, 2000, COMPUTE), (2000, 9980, COMMUNICATION), rank=rank, world_size=4) for rank in range(3)]
    late = run(*work, marks=((0, 5990, mark),), rank=3, world_size=4)
    found = judged(*ranks, replace(late, host=late.ranges))
    bounds = [one.at_most for one in found.advice if mark in one.action or "loader workers" in one.action]
    assert bounds and bounds == pytest.approx([1 / (1 - 0.6)] * len(bounds), rel=0.02)


def test_waiting_for_ranks_in_turn_is_less_certain() -> None:
    one, other = _waiting(late=0, ranks=2), _waiting(late=1, ranks=2)
    ranks = []  # half of the steps of each
    for first, second in zip(one, other, strict=True):
        both = (first.ops.where(first.ops.start < 5 * STEP), second.ops.where(second.ops.start >= 5 * STEP))
        work = [row for ops in both for row in zip(ops.start, ops.end, ops.kind, strict=True)]
        ranks.append(replace(timeline(work, rank=first.rank, world_size=2), ranges=first.ranges))
    found = judged(*ranks)
    assert found.bound == Bound.STRAGGLER and "no single rank" in found.reason
    assert found.confidence < judged(*one).confidence


def test_wire_and_waiting_are_not_added_up() -> None:
    """Each is below its threshold."""
    ends = enumerate((8480, 7280))
    found = judged(*(run((20, end, COMPUTE), (end, 9980, COMMUNICATION), rank=r, world_size=2) for r, end in ends))
    assert value(found, "exposed transfer") == pytest.approx(15, abs=0.5)
    assert value(found, "exposed waiting for other ranks") == pytest.approx(6, abs=0.5)
    assert found.bound == Bound.BALANCED and found.certainty != Certainty.HIGH
    assert found.reason.index("computing 7") < found.reason.index("exposed communication 2")


def test_only_matched_collectives_are_transfer() -> None:
    """Sends wait for 4 of 10 ms in a pipeline, an all-reduce transfers for 0.2; or one rank recorded twice as many steps."""
    send = {"name": "ncclDevKernel_SendRecv"}
    stages = ((6000, 9780), (20, 4000), (9780, 9980)), ((20, 5800), (5800, 9780), (9780, 9980))
    pipeline = [
        run((*work, COMPUTE), (*sending, COMMUNICATION, send), (*reducing, COMMUNICATION), rank=rank, world_size=2)
        for rank, (work, sending, reducing) in enumerate(stages)
    ]
    longer = [_waiting(1, 2)[0], _waiting(1, 2, steps=5)[1]]
    for ranks in (pipeline, longer):
        found = judged(*ranks)
        assert value(found, "exposed transfer") < 5
        assert value(found, "exposed, transfer and waiting not separated") > 10
        assert "in transfer" not in found.reason
    assert judged(*pipeline).bound == Bound.COMMUNICATION
    assert not any("not separated" in one.name for one in judged(*_waiting(1, 2)).evidence)


def test_of_two_losses_the_larger_one_is_the_verdict() -> None:
    near = judged(run((3500, 6000, COMPUTE), (6000, 9980, COMMUNICATION), marks=((0, 3450, "data"),)))
    assert near.bound == Bound.COMMUNICATION and value(near, "loader idle") > 10
    assert "nearly as much is lost waiting for data" in near.reason


def test_an_unmarked_loader_is_guessed_from_the_gaps_between_steps() -> None:
    starts = [number * STEP for number in range(10)]
    work = [(start, start + 6 * MS, COMPUTE, {"launched": start}) for start in starts]
    found = judged(timeline(work, [(start, start + 6 * MS, "step") for start in starts]))
    assert found.bound == Bound.INPUT and found.certainty != Certainty.HIGH
    assert "nothing is marked" in found.reason
    assert any("range `data`" in one.action for one in found.advice)


@pytest.mark.parametrize(
    ("marks", "bound"),
    [
        ((), Bound.INPUT),
        (((6000, 10_000, "validate"),), Bound.HOST),
        (((0, 20, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),), Bound.HOST),
    ],
    ids=["nothing", "a range", "the loader"],
)
def test_a_gap_between_batches_is_the_loaders_only_where_nothing_else_is_recorded(marks: tuple, bound: Bound) -> None:
    """4 of 10 ms, without marked steps."""
    marked = run((20, 6000, COMPUTE), marks=((20, 2000, "forward"), (2000, 6000, "backward"), *marks))
    steps = np.array([name.startswith("ProfilerStep") for name in marked.ranges.names])
    ranges = marked.ranges.where(~steps[marked.ranges.name])
    assert judged(replace(marked, ranges=ranges, host=ranges)).bound == bound


def test_waiting_in_process_groups_names_no_rank() -> None:
    """Rank 1 delays rank 0; the others are even."""
    groups = ["a", "a", "b", "b"]
    ranks = [
        run((20, end, COMPUTE), (end, 9980, COMMUNICATION, {"group": group}), rank=rank, world_size=4)
        for rank, (end, group) in enumerate(zip((1500, 9500, 9500, 9500), groups, strict=True))
    ]
    found = judged(*ranks)
    assert found.bound == Bound.STRAGGLER and "several process groups" in found.reason
    assert [one.at_most for one in found.advice] == [None]


def test_a_layout_saves_at_most_the_kernels_that_change_it() -> None:
    changing = (7000, 8000, COMPUTE, {"name": "cudnn::engines_precompiled::nchwToNhwcKernel<__half>"})
    few = (20, 7000, COMPUTE, {"name": ELEMENTWISE})
    advice = judged(run(few, changing, (8000, 9980, COMPUTE))).advice
    assert [one.at_most for one in advice if "channels_last" in one.action] == pytest.approx([1 / 0.9], rel=1e-2)
    assert not any("channels_last" in one.action for one in judged(run(few, (7000, 9980, COMPUTE))).advice)


def _counters(sm: float, dram: float) -> pd.DataFrame:
    columns = {
        "name": ["void gemm<1>(int)", "void gemm<2>(int)", "copy"],
        "device": ["NVIDIA A100"] * 3,
        "duration_ns": [3.0, 1.0, float("nan")],
        "sm_share": [sm, sm, 1.0],
        "memory_share": [dram, dram, 1.0],
        "dram_share": [dram, dram, 1.0],
        "tensor_share": [0.5, float("nan"), 1.0],
    }
    return pd.DataFrame(columns)


def test_counters_decide_between_arithmetic_and_memory() -> None:
    plain, good, poor = (judged(run(BUSY), kernels=seen) for seen in (None, _counters(0.8, 0.3), _counters(0.2, 0.1)))
    assert good.bound == poor.bound == Bound.COMPUTE
    assert value(good, "kernel efficiency, of the nearest peak") == pytest.approx(80)
    assert value(good, "kernels' use of tensor cores") == 50
    assert good.confidence > plain.confidence and poor.confidence < good.confidence
    moving = judged(run(BUSY), kernels=_counters(0.3, 0.9))
    assert moving.bound == Bound.MEMORY and "disagree" in moving.reason
    alone = judged(kernels=_counters(0.3, 0.9))
    assert alone.bound == Bound.MEMORY and alone.certainty != Certainty.HIGH
    assert judged(kernels=_counters(0.3, 0.2)).bound == Bound.NOT_ENOUGH
    assert judged(kernels=_counters(float("nan"), 0.2)).bound == Bound.NOT_ENOUGH


def test_counters_alone_name_the_kernel_its_time_its_device_and_its_peak() -> None:
    for shares, peak in (((0.8, 0.3), "the SMs"), ((0.3, 0.9), "DRAM")):
        found = judged(kernels=_counters(*shares))
        assert all(part in found.reason for part in ("gemm on NVIDIA A100", "0.004 us", peak))
        assert value(found, f"gemm on NVIDIA A100, 0.004 us, of the peak of {peak}") == pytest.approx(
            100 * max(shares)
        )
        assert not any("Nsight Compute" in one.action for one in found.advice)


def test_the_straggler_is_told_what_it_was_in() -> None:
    """Its GEMM is longer, or a range is around the gap in which the others wait."""
    found = judged(*_waiting(late=2))
    assert found.advice[0].action.endswith("ampere_sgemm_128x64_nn")
    ranks = [
        run((20, 5000, COMPUTE), (end, 9980, COMMUNICATION), rank=rank, world_size=2)
        for rank, end in enumerate((5000, 9500))
    ]
    pauses = [(n * STEP + 5000 * US, n * STEP + 9500 * US, "tokenize") for n in range(10)]
    ranks[1] = replace(ranks[1], host=timeline([], pauses).ranges)
    late = judged(*ranks)
    assert late.bound == Bound.STRAGGLER and "rank 1" in late.reason
    assert "tokenize" in late.advice[0].action


def test_phases_of_a_run_decide_where_no_gpu_was_seen() -> None:
    seconds = {"data": 0.3, "forward": 0.2, "backward": 0.4, "optimizer": 0.1}
    found = judged(phases=seconds, kernels=_counters(0.3, 0.9))
    assert (found.bound, found.certainty) == (Bound.INPUT, Certainty.MEDIUM)
    assert value(found, "data phase, of the step") == pytest.approx(30)
    computing = judged(phases=seconds | {"data": 0.01})
    several = judged(timeline(None, world_size=2), phases=seconds | {"data": 0.01})
    assert (computing.bound, several.bound) == (Bound.COMPUTE, Bound.NOT_ENOUGH), "the all-reduce is somewhere inside"
    assert judged(phases=seconds | {"data": 0.0, "communication": 0.5}).bound == Bound.COMMUNICATION
    assert judged(phases=dict.fromkeys(seconds, 0.0)).bound == Bound.NOT_ENOUGH


def test_a_runs_own_records_have_the_loader_that_the_profile_has_not() -> None:
    recorded = {"data": 0.2, "forward": 0.8}
    assert value(judged(run(BUSY, marks=())), "loader idle") is None
    found = judged(run(BUSY, marks=()), phases=recorded)
    assert value(found, "loader idle") == pytest.approx(20)
    assert any("own records" in remark for remark in found.remarks)
    assert value(judged(run(BUSY), phases=recorded), "loader idle") < 1


@pytest.mark.parametrize(
    "timelines",
    [
        [],
        [timeline([]), timeline(None, rank=1)],
        [timeline([(0, 10, COMPUTE), (90, 100, COMPUTE)])],  # two kernels are not many
        [timeline(None, [(0, 10, "step")])],
    ],
)
def test_too_little_is_not_enough(timelines: list[Timeline]) -> None:
    found = judged(*timelines)
    assert (found.bound, found.confidence) == (Bound.NOT_ENOUGH, 0) and found.reason


@settings(max_examples=60)
@given(st.lists(anything(), max_size=3), st.booleans())
def test_whatever_was_seen_there_is_a_verdict(drawn: list, world: bool) -> None:
    found = judged(*(timeline(w, r, rank=n, world_size=4 if world else None) for n, (w, r) in enumerate(drawn)))
    assert isinstance(found.bound, Bound)


def test_a_short_profile_of_a_cpu_leaves_the_verdict_to_the_records() -> None:
    recorded = {"data": 0.8, "forward": 0.1, "backward": 0.1, "optimizer": 0.0}
    short, long = (
        judged(run(BUSY, steps=steps, device=None, device_name="CPU"), phases=recorded) for steps in (2, 5)
    )
    assert (short.bound, long.bound) == (Bound.INPUT, Bound.COMPUTE)
    assert not any("Nsight" in one.action for one in long.advice)


def test_what_the_run_does_already_is_not_advised() -> None:
    ranks = [run((20, 6000, COMPUTE), (5000, 9980, COMMUNICATION), rank=r, world_size=2) for r in (0, 1)]
    plain, hooked = (judged(*ranks, config={"comm_hook": hook}) for hook in ("none", "bf16"))
    assert [one for one in plain.advice if "16 bits" not in one.action] == [*hooked.advice] != [*plain.advice]


def test_two_small_waits_for_data_are_no_bottleneck() -> None:
    """The loader takes 3 % and a gap between steps 3 %: both thresholds of 5 % are met; 9 % of communication is exposed."""
    work = (300, 7_600, COMPUTE), (7_600, 8_500, COMMUNICATION), (8_700, 8_750, COMPUTE)
    starts = [number * STEP for number in range(10)]
    timelines = []
    for rank in (0, 1):
        rows = [(start + begin * US, start + end * US, kind) for start in starts for begin, end, kind in work]
        marks = [(start, start + 9_700 * US, "step") for start in starts] + [
            (start, start + 300 * US, "data") for start in starts
        ]
        timelines.append(timeline(rows, marks, rank=rank, world_size=2))
    found = judged(*timelines)
    assert all(item.met for item in found.evidence if item.threshold is not None and item.name != "utilisation")
    assert found.bound == Bound.BALANCED
    assert found.reason.index("computing") < found.reason.index("otherwise idle") < found.reason.index("exposed")


@pytest.mark.parametrize("loader", ["host", "device", "workers"])
def test_data_in_memory_needs_no_workers(loader: str) -> None:
    waiting = run((4000, 9980, COMPUTE), marks=((0, 3950, "data"),))
    found = judge(Reports([waiting], config={"loader": loader, "workload": "cnn"}))
    tried = [
        next((word for word in ("num_workers", "loader=device") if word in one.action), "") for one in found.advice
    ]
    assert found.bound == Bound.INPUT
    assert tried == {"host": ["loader=device"], "device": [], "workers": ["num_workers", ""]}[loader]
    own = judge(Reports([waiting], config={"loader": loader, "workload": "mine:model"}))
    assert any("num_workers" in one.action for one in own.advice)


@pytest.mark.parametrize("seen", [{}, {"phases": {"data": 0.0, "forward": 0.2, "backward": 0.4, "optimizer": 0.1}}])
def test_other_processes_on_a_device_cast_doubt(seen: dict) -> None:
    alone, disturbed = (judged(*([] if seen else [run(BUSY)]), **seen, load=load) for load in (0.05, 0.4))
    assert alone.bound == disturbed.bound and alone.confidence > disturbed.confidence
    assert "40%" in disturbed.reason and "40%" not in alone.reason


def test_steps_that_the_profiler_lengthens_cast_doubt() -> None:
    """A step of `run` takes 10 ms."""
    alike, longer, unknown = (judged(run(BUSY), step_seconds=each) for each in (9.5e-3, 5e-3, math.nan))
    assert alike.confidence == unknown.confidence > longer.confidence
    assert "2 times" in longer.reason and "times" not in alike.reason


def test_confidence_falls_with_what_is_missing() -> None:
    sure = judged(run(BUSY)).confidence
    unseen = judged(run(BUSY, world_size=2))
    lacking = [
        judged(run((1800, 9980, COMPUTE))),
        judged(run(BUSY, steps=1)),
        judged(run(BUSY, marks=())),
        judged(run((20, 5000, COMPUTE), (5000, 9980, UNKNOWN))),
        unseen,
    ]
    assert all(one.confidence < sure for one in lacking)
    assert NO_COMMUNICATION in unseen.remarks and "1 of 2 ranks" in unseen.reason
    assert any("rank 1" in remark for remark in judged(run(BUSY), timeline(None, rank=1)).remarks)
