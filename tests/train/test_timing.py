from __future__ import annotations

import time
from collections.abc import Iterator
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.train.timing import PHASES, StepClock

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def now() -> Iterator[list[float]]:
    """The time, which passes as the test says."""
    clock = [100.0]
    with mock.patch.object(time, "perf_counter", lambda: clock[0]):
        yield clock


DURATIONS = st.lists(st.tuples(*[st.integers(0, 100)] * 4), max_size=20)


@given(durations=DURATIONS, every=st.integers(1, 6))
def test_steps_add_up_to_the_epoch_and_phases_to_the_step(now, durations, every) -> None:
    clock = StepClock(CPU, phase_every=every)
    now[0] += 50.0  # before the epoch: nobody's
    clock.start()
    for step in durations:
        for phase, seconds in zip(PHASES, step, strict=True):
            now[0] += seconds
            clock.step() if phase == "optimizer" else clock.lap(phase)
    times = clock.finish()
    assert sum(step.seconds for step in times) == sum(map(sum, durations))
    for number, (step, durations_of_it) in enumerate(zip(times, durations, strict=True)):
        sampled = number % every == 0
        assert step.phases == (dict(zip(PHASES, durations_of_it, strict=True)) if sampled else {})


@pytest.mark.parametrize(
    ("laps", "phases"),
    [
        (["data", "forward", "backward", "forward", "backward"],  # gradient accumulation
         {"data": 1, "forward": 2, "backward": 2, "optimizer": 1}),
        (["data"], {"data": 1}),  # a loop that marks no phases knows only its wait for data
    ],
)  # fmt: skip
def test_phases_are_added_up_as_far_as_they_are_marked(now, laps: list[str], phases: dict[str, float]) -> None:
    clock = StepClock(CPU, phase_every=1)
    for phase in laps:
        now[0] += 1
        clock.lap(phase)
    now[0] += 1
    clock.step()
    (step,) = clock.finish()
    assert (step.seconds, step.phases) == (len(laps) + 1, phases)
