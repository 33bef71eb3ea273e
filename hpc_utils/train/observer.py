"""What watches a run beside the recorder's clock: memory, energy, profiler, monitor, progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Observer:
    """The recorder makes the same four calls to each of its observers, on every rank.

    Attributes:
        problems: what went wrong, in words; the run goes on.
    """

    problems: Sequence[str] = ()

    def on_start(self, run: Path) -> None:
        """The run's folder is there."""

    def on_epoch(self, rows: Sequence[Mapping[str, Any]], first: int, last: int | None) -> None:
        """An epoch begins with its step `first` and ends with `last` (None: unknown); `rows` are those before it."""

    def on_step(self, sampled: bool) -> None:
        """A step has ended; `sampled`: its phases were timed."""

    def on_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The run ends, in order or not."""
