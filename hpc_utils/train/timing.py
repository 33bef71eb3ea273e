"""Step and phase times on the device's clock, without synchronising the device."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

PHASES = ("data", "forward", "backward", "optimizer")
OTHER = "other"  # what is no phase: a loop's work between a step, or one of its batches, and the next wait for data


@dataclass
class StepTime:
    """One step's duration; `phases` in seconds if the step was sampled, else empty."""

    seconds: float
    phases: dict[str, float] = field(default_factory=dict)


class StepClock:
    """Times each step, and the phases of every `phase_every`-th step.

    It uses the host's clock on a CPU, and CUDA events on a GPU, which are read after the epoch.
    """

    def __init__(self, device: torch.device, phase_every: int = 4) -> None:
        self._events = device.type == "cuda"
        self._every = phase_every
        self.start()

    def start(self) -> None:
        """Start an epoch."""
        self._steps: list[list[tuple[str, object]]] = []
        self._laps: list[tuple[str, object]] = []
        self._begins = {0: self._now()}  # start of each step that does not start at the end of the previous one

    def lap(self, phase: str) -> None:
        """Mark the end of `phase`."""
        if self.sampled:
            self._laps.append((phase, self._now()))

    @property
    def sampled(self) -> bool:
        """Whether the phases of the current step are timed."""
        return len(self._steps) % self._every == 0

    def step(self) -> None:
        """Mark the end of the step and of its last phase, the optimizer."""
        self._laps.append(("optimizer", self._now()))
        self._steps.append(self._laps)
        self._laps = []

    def skip(self) -> None:
        """Start the next step now: the time since the last step belongs to none."""
        self._begins[len(self._steps)] = self._now()

    @property
    def steps(self) -> int:
        """Steps finished in this epoch."""
        return len(self._steps)

    def finish(self) -> list[StepTime]:
        """Return the epoch's steps so far. The device must be synchronised."""
        times = []
        before = None
        for number, laps in enumerate(self._steps):
            before = self._begins.get(number, before)
            end = laps[-1][1]
            phases = {}
            last = before
            if number % self._every == 0:
                for name, mark in laps:
                    phases[name] = phases.get(name, 0.0) + self._between(last, mark)
                    last = mark
                phases.pop(OTHER, None)
                if "forward" not in phases:  # the loop marks no phases: only the wait for data is known
                    phases = {"data": phases.get("data", 0.0)}
            times.append(StepTime(self._between(before, end), phases))
            before = end
        return times

    def _now(self) -> object:
        if not self._events:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, first, last) -> float:
        return first.elapsed_time(last) / 1e3 if self._events else last - first
