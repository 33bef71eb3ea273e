"""Step and phase times on the device's own clock, without stopping the device."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch

PHASES = ("data", "forward", "backward", "optimizer")


@dataclass
class StepTime:
    """One step: `seconds` in all; `phases` in seconds where the step was sampled, else empty."""

    seconds: float
    phases: dict[str, float] = field(default_factory=dict)


class StepClock:
    """Times each step and, on every `phase_every`-th, its phases.

    On a CPU by the host's clock; on a GPU by events on the stream, read when the epoch is over, so that
    timing never synchronises.
    """

    def __init__(self, device: torch.device, phase_every: int = 4) -> None:
        self._events = device.type == "cuda"
        self._every = phase_every
        self.start()

    def start(self) -> None:
        """Begin an epoch."""
        self._steps: list[list[tuple[str, object]]] = []
        self._laps: list[tuple[str, object]] = []
        self._begins = {0: self._now()}  # of the steps that do not begin with the end of the one before

    def lap(self, phase: str) -> None:
        """`phase` ends here."""
        if self.sampled:
            self._laps.append((phase, self._now()))

    @property
    def sampled(self) -> bool:
        """Whether the step under way is one whose phases are timed."""
        return len(self._steps) % self._every == 0

    def step(self) -> None:
        """The step ends here, and with it its last phase, the optimizer."""
        self._laps.append(("optimizer", self._now()))
        self._steps.append(self._laps)
        self._laps = []

    def skip(self) -> None:
        """What happened since the last step belongs to none: the next one begins here."""
        self._begins[len(self._steps)] = self._now()

    @property
    def steps(self) -> int:
        """Steps ended in this epoch."""
        return len(self._steps)

    def finish(self) -> list[StepTime]:
        """The epoch's steps so far, in order; the device must have been synchronised."""
        times, before = [], None
        for number, laps in enumerate(self._steps):
            before, end = self._begins.get(number, before), laps[-1][1]
            phases, last = {}, before
            if number % self._every == 0:
                for name, mark in laps:
                    phases[name] = phases.get(name, 0.0) + self._between(last, mark)
                    last = mark
                if "forward" not in phases:  # a loop that marks no phases: only its wait for data is known
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
