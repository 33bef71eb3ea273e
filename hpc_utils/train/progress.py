"""Progress of a run: a line per epoch, and `progress.json` for launchers, which show a bar."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .observer import Observer

HEARTBEAT = 1.0  # s between updates of progress.json


class Progress(Observer):
    """Rank 0's progress; silent on other ranks (`show=False`)."""

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._shown = 0  # epochs whose line is printed
        self.expect(0, 0)

    def expect(self, epochs: int, steps: int, *, done: int = 0) -> None:
        """Set the plan: `epochs` of `steps` each (0: unknown), and the `done` steps of previous attempts."""
        self._epochs = epochs
        self._total = epochs * steps
        self._done = done
        self._next = 0.0
        self._shown = max(0, (done - 1) // steps) if steps else 0

    def on_start(self, run: Path) -> None:
        self._path = run / "progress.json"

    def on_step(self, sampled: bool) -> None:
        if not (self._show and self._total):
            return
        self._done += 1
        if (moment := time.monotonic()) >= self._next:
            self._next = moment + HEARTBEAT
            # Not synced to disk: that would slow the step, and a lost update does no harm.
            temporary = self._path.with_name(".progress.json")
            with contextlib.suppress(OSError):  # a full disk
                temporary.write_text(json.dumps({"step": self._done, "steps": self._total, "at": time.time()}))
                temporary.replace(self._path)

    def on_epoch(self, rows: Sequence[Mapping[str, Any]], first: int, last: int | None) -> None:
        """Print the line of the previous epoch, whose row is now complete."""
        if not self._show or len(rows) <= self._shown:
            return
        self._shown = len(rows)
        row = rows[-1]
        total = f"/{self._epochs}" if self._epochs else ""
        parts = [f"epoch {row['epoch']}{total}", f"{row['throughput']:,.0f} samples/s"]
        # With a workload's own metrics.
        metrics = (name for name in row if name == "train_loss" or name.startswith("test_"))
        parts += [f"{name.replace('_', ' ')} {row[name]:.4f}" for name in metrics if row[name] is not None]
        with contextlib.suppress(OSError):  # a log on a full disk does not stop the run
            print(*parts, sep="  ", flush=True)

    def on_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.on_epoch(rows, 0, None)
