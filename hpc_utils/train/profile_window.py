"""The profile window: the few steps that a profiler records, the same on every rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hpc_utils.config import PROFILE_STEPS

from .observer import Observer
from .profilers import Profiler, profiler
from .ranks import Ranks
from .timing import OTHER

BEFORE = 2  # steps before the window: the loader is then running and the order of the phases is known


class NoWindow(Observer):
    """A run without a profile.

    Attributes:
        facts: entry of `run.json` about the profile.
    """

    facts: dict[str, Any] | None = None

    def begin_step(self) -> None:
        """A step starts, with the wait for its batch."""

    def lap(self, phase: str) -> None:
        """`phase` ends."""

    def end_epoch(self) -> None:
        """The epoch has no more steps."""


class ProfileWindow(NoWindow):
    """The window starts after `BEFORE` steps of this process and ends within the same epoch.

    Args:
        parameters: of the run: `profile` and `profile_steps`; fewer steps if the epoch ends earlier.
        pause: context that pauses the clock on all ranks.

    If the profiler fails to start, the window opens without it: closing it is a collective of all ranks.
    """

    def __init__(
        self,
        parameters: Mapping[str, Any],
        ranks: Ranks,
        pause: Callable[[], AbstractContextManager],
    ) -> None:
        profile = parameters["profile"]
        self._profiler = profiler(profile, ranks)
        self._length = parameters.get("profile_steps") or PROFILE_STEPS[profile]
        self._ranks = ranks
        self._pause = pause
        self._ranges = StepRanges(self._profiler)
        self._epoch = 1
        self._step = 1  # the next one
        self._last = None  # the last step of the epoch, if known
        self._seen = self._taken = 0  # steps of this process, steps in the window
        self._is_armed = self._is_open = self._is_running = False
        self._is_due = True
        self.problems: list[str] = []
        self.facts = {"tool": profile, "version": self._profiler.version, "steps": 0}

    def on_start(self, run: Path) -> None:
        self._run = run

    def on_epoch(self, rows: Sequence[Mapping[str, Any]], first: int, last: int | None) -> None:
        self._epoch = len(rows) + 1
        self._step = first
        self._last = last
        if not self._is_armed:
            self._profiler.arm(self._run)
            self._is_armed = True

    def begin_step(self) -> None:
        is_over = self._last is not None and self._step > self._last
        if self._seen == BEFORE and self._is_due and not is_over:
            self._open()
        if self._is_running:
            self._ranges.begin()

    def lap(self, phase: str) -> None:
        self._ranges.lap(phase)

    def on_step(self, sampled: bool) -> None:
        self._ranges.end()
        self._seen += 1
        self._taken += self._is_open
        if self._is_open and (self._taken == self._length or self._step == self._last):
            self.end_epoch()
        self._step += 1

    def end_epoch(self) -> None:
        if self._is_open:
            with self._pause():
                self._close()

    def on_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._close()

    def _open(self) -> None:
        self._is_due = False
        self._is_open = True
        self._ranks.synchronize()
        try:
            self._profiler.start()
        except Exception as error:
            self.problems.append(f"no profile: {type(error).__name__}: {error}")
            return
        self._is_running = True
        self.facts |= {"epoch": self._epoch, "first_step": self._step, "begun": time.time()}

    def _close(self) -> None:
        """Close the window if it is open, normally or after an error of the run."""
        running = self._is_running
        self._is_open = False
        self._is_running = False
        if not running:
            return
        try:
            self._ranges.abandon()
            self._ranks.synchronize()
            self._profiler.stop()
        except Exception as error:  # such as a full disk or a failed device, which the run itself reports
            self.problems.append(f"no profile: {type(error).__name__}: {error}")
        self.facts |= {"steps": self._taken, "ended": time.time()}


class StepRanges:
    """The profiler's ranges: `step`, and within it `data` and the phases that the loop marks.

    A range needs its name at the start, but the loop names a phase at its end. The order of the previous step is used.
    """

    def __init__(self, profiler: Profiler) -> None:
        self._profiler = profiler
        self._order: list[str] = ["data"]
        self._laps: list[str] = []
        self._depth = 0  # ranges open: none, the step, the step and a phase

    def begin(self) -> None:
        """Open the range of a step."""
        self._push("step")
        self._next()

    def lap(self, phase: str) -> None:
        """End the range of `phase`."""
        self._laps.append(phase)
        if self._depth:
            self._next()

    def end(self) -> None:
        """End the step and its last phase, the optimizer; a loop that marks no phases has none."""
        has_phases = not {*self._laps} <= {"data", OTHER}
        self._order = [*self._laps, "optimizer"] if has_phases else self._laps
        self._laps = []
        self.abandon()

    def abandon(self) -> None:
        """End all open ranges."""
        while self._depth:
            self._pop()

    def _next(self) -> None:
        if self._depth > 1:
            self._pop()
        if len(self._laps) < len(self._order) and (phase := self._order[len(self._laps)]) != OTHER:
            self._push(phase)

    def _push(self, name: str) -> None:
        self._profiler.push(name)
        self._depth += 1

    def _pop(self) -> None:
        self._profiler.pop()
        self._depth -= 1
