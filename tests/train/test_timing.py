from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.train.timing import PHASES, StepClock

CPU = torch.device("cpu")


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time, which passes as the test says."""
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    return clock


def run(clock: StepClock, now: list[float], durations: list[tuple[float, ...]]) -> None:
    """Steps whose phases take so long."""
    clock.start()
    for step in durations:
        for phase, seconds in zip(PHASES, step, strict=True):
            now[0] += seconds
            clock.step() if phase == "optimizer" else clock.lap(phase)


def test_steps_and_the_sampled_ones_phases(now) -> None:
    clock = StepClock(CPU, phase_every=2)
    run(clock, now, [(1, 2, 4, 8), (1, 1, 1, 1), (2, 2, 2, 2)])
    assert clock.steps == 3
    first, second, third = clock.finish()
    assert (first.seconds, second.seconds, third.seconds) == (15, 4, 8)
    assert first.phases == {"data": 1, "forward": 2, "backward": 4, "optimizer": 8}
    assert second.phases == {}
    assert third.phases == dict.fromkeys(PHASES, 2)


DURATIONS = st.lists(st.tuples(*[st.integers(0, 100)] * 4), max_size=20)


@given(durations=DURATIONS, every=st.integers(1, 6))
def test_steps_add_up_to_the_epoch_and_phases_to_the_step(durations, every) -> None:
    with pytest.MonkeyPatch.context() as patch:
        now = [0.0]
        patch.setattr(time, "perf_counter", lambda: now[0])
        clock = StepClock(CPU, phase_every=every)
        now[0] = 50.0  # before the epoch: nobody's
        run(clock, now, durations)
        times = clock.finish()
    assert sum(step.seconds for step in times) == sum(map(sum, durations))
    for number, (step, durations_of_it) in enumerate(zip(times, durations, strict=True)):
        sampled = number % every == 0
        assert step.phases == (dict(zip(PHASES, durations_of_it, strict=True)) if sampled else {})


def test_a_phase_that_comes_twice_is_added_up(now) -> None:
    """Gradient accumulation: several forward and backward passes in one step."""
    clock = StepClock(CPU, phase_every=1)
    for phase in ("data", "forward", "backward", "forward", "backward"):
        now[0] += 1
        clock.lap(phase)
    now[0] += 1
    clock.step()
    (step,) = clock.finish()
    assert step.seconds == 6
    assert step.phases == {"data": 1, "forward": 2, "backward": 2, "optimizer": 1}


def test_a_loop_that_marks_no_phases_knows_its_wait_for_data(now) -> None:
    clock = StepClock(CPU, phase_every=1)
    now[0] += 3
    clock.lap("data")
    now[0] += 4
    clock.step()
    (step,) = clock.finish()
    assert (step.seconds, step.phases) == (7, {"data": 3})


def test_each_epoch_begins_anew(now) -> None:
    clock = StepClock(CPU, phase_every=4)
    run(clock, now, [(1, 1, 1, 1)] * 3)
    clock.finish()
    now[0] += 1000  # evaluation
    run(clock, now, [(1, 2, 3, 4)])
    (step,) = clock.finish()
    assert step.seconds == 10 and step.phases["backward"] == 3
