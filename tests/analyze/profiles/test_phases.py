"""Which ranges are phases, and what they cost host and device."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given

from hpc_utils.analyze.profiles import phases

from .timelines import anything, moments, timeline


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("step", "step"),
        ("ProfilerStep#12", "step"),
        ("train_step", "step"),
        ("data", "data"),
        ("data_loading", "data"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data"),
        ("Forward", "forward"),
        ("## forward ##", "forward"),
        ("DistributedDataParallel.forward", "forward"),
        ("backward", "backward"),
        ("optimizer", "optimizer"),
        ("Optimizer.step#SGD.step, op_id = 17", "optimizer"),
        ("nccl:all_reduce", None),
        ("DataParallel", None),
        ("data_input", None),  # DALI's reader, on a thread of its own
        ("", None),
        ("step" * 1000, None),
    ],
)
def test_ranges_are_known_by_name(name: str, phase: str | None) -> None:
    assert phases.phase_of(name) == phase


@given(anything())
def test_times_of_a_phase_are_what_counting_gives(drawn: tuple) -> None:
    work, ranges = drawn
    table = phases.phase_table([timeline(work, ranges), timeline(None)])
    found = {row["phase"]: row for row in table.to_dict("records")}
    known = [item for item in work if item[3]["launched"] >= 0]
    for name, marks in {"step": ("step", "ProfilerStep#3"), "data": ("data",), "forward": ("forward",)}.items():
        chosen = [mark[:2] for mark in ranges if mark[2] in marks]
        if not chosen:
            assert name not in found
            continue
        window, row = moments(chosen), found[name]
        assert (row["count"], row["host_ns"]) == (len(chosen), window.sum())
        if work and not known:
            assert pd.isna(row["device_ns"])
            continue
        launched = [item for item in known if window[item[3]["launched"]]]
        assert row["device_ns"] == moments([item[:2] for item in launched]).sum()
        assert row["ops"] == len(launched)
    assert "else" not in found
    assert len(table) == len(found)


def test_a_step_inside_a_step_is_the_same_one() -> None:
    marks = [(0, 10, "ProfilerStep#1"), (1, 9, "step 1"), (10, 30, "ProfilerStep#2"), (11, 30, "step 2")]
    start, end = phases.steps(timeline([], marks).ranges)
    assert (start.tolist(), end.tolist()) == ([0, 10], [10, 30])
    assert len(phases.steps(timeline([]).ranges)[0]) == 0


@pytest.mark.parametrize(("length", "count"), [(5, 3), (3, 0)])
def test_steps_that_cover_less_than_half_of_their_time_are_none(length: int, count: int) -> None:
    marks = [(start, start + length, "step") for start in (10**18, 10**18 + 10, 10**18 + 20)]
    assert len(phases.steps(timeline([], marks).ranges)[0]) == count
