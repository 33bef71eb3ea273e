"""Named ranges of the host's time: where a step and its phases begin and end, said to whatever watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from hpc_utils import profilers
from hpc_utils.config import ConfigError


class Speaker(Protocol):
    """Nested ranges: the last one begun is the first to end."""

    def push(self, name: str) -> None: ...

    def pop(self) -> None: ...


class Recorded:
    """Ranges of torch's own profiler."""

    def __init__(self) -> None:
        self._open: list[AbstractContextManager] = []

    def push(self, name: str) -> None:
        self._open.append(torch.profiler.record_function(name))
        self._open[-1].__enter__()

    def pop(self) -> None:
        self._open.pop().__exit__(None, None, None)


class Nvtx:
    """NVTX ranges, by torch where it is built with CUDA, else by the package nvtx.

    Raises:
        ConfigError: there is neither, or one that `nsys` (its version) does not hear.
    """

    def __init__(self, nsys: str) -> None:
        self.push: Callable[[str], object]
        self.pop: Callable[[], object]
        if torch.backends.cuda.is_built():
            self.push, self.pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
            return
        if fault := profilers.nvtx_fault(nsys):
            raise ConfigError(f"profile='nsys': {fault}")
        import nvtx

        self.push, self.pop = nvtx.push_range, nvtx.pop_range


class Step:
    """The ranges of a training loop: `step`, and within it `data` and whatever phases the loop marks the ends of.

    A phase is named when it ends, a range when it begins: so a step's ranges are those that the step before has shown.
    """

    def __init__(self) -> None:
        self._order: list[str] = ["data"]
        self._laps: list[str] = []
        self._speaker: Speaker | None = None
        self._coming: Iterator[str] = iter(())
        self._depth = 0

    def begin(self, speaker: Speaker) -> None:
        """A step begins, and is told to `speaker` until it ends."""
        self._speaker, self._coming, self._depth = speaker, iter(self._order), 0
        self._push("step")
        self._next()

    def lap(self, phase: str) -> None:
        """`phase` ends here."""
        self._laps.append(phase)
        if self._speaker:
            self._next()

    def end(self) -> None:
        """The step ends here, and with it the optimizer, its last phase; a loop that marks no phases has none."""
        self._order = [*self._laps, "optimizer"] if len(self._laps) > 1 else self._laps
        self._laps = []
        self.abandon()

    def abandon(self) -> None:
        """End what was begun: there is no such step."""
        while self._depth:
            self._pop()
        self._speaker = None

    def _next(self) -> None:
        if self._depth > 1:
            self._pop()
        for phase in self._coming:
            self._push(phase)
            return

    def _push(self, name: str) -> None:
        self._speaker.push(name)
        self._depth += 1

    def _pop(self) -> None:
        self._speaker.pop()
        self._depth -= 1
