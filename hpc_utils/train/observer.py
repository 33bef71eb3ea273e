"""The interface of the recorder's observers: memory, energy, profiler, monitor, progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Observer:
    """The recorder makes the same four calls to each of its observers, on every rank.

    Attributes:
        problems: messages about what failed; the run continues.
    """

    problems: Sequence[str] = ()

    def on_start(self, run: Path) -> None:
        """The run starts in the folder `run`."""

    def on_epoch(self, rows: Sequence[Mapping[str, Any]], first: int, last: int | None) -> None:
        """An epoch starts at step `first` and ends at step `last` (None: unknown); `rows` are the epochs before it."""

    def on_step(self, sampled: bool) -> None:
        """A step ended; `sampled`: its phases were timed."""

    def on_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The run ends, normally or by an error."""
