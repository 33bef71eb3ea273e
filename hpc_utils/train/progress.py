"""Progress of a run: a bar in a terminal or notebook, a line per epoch in a log, `progress.json` for launchers."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .observer import Observer

HEARTBEAT = 1.0  # s between updates of progress.json


class Progress(Observer):
    """Rank 0's progress; silent on other ranks (`show=False`)."""

    def __init__(self, *, show: bool) -> None:
        self._show, self._path, self._bar = show, None, None
        self._shown = 0  # epochs whose line is printed
        self.expect(0, 0)

    def expect(self, epochs: int, steps: int, *, done: int = 0) -> None:
        """Set the plan: `epochs` of `steps` each (0: unknown), and the `done` steps of previous attempts."""
        self._epochs, self._total, self._done, self._next = epochs, epochs * steps, done, 0.0
        self._shown = max(0, (done - 1) // steps) if steps else 0
        self._close_bar()
        if self._show and self._total and _is_live():
            from tqdm import tqdm

            style = {"unit": "step", "file": sys.stderr, "leave": False, "dynamic_ncols": True}
            self._bar = tqdm(total=self._total, initial=done, **style)

    def on_start(self, run: Path) -> None:
        self._path = run / "progress.json"

    def on_step(self, sampled: bool) -> None:
        if not (self._show and self._total):
            return
        self._done += 1
        if self._bar is not None:
            self._bar.update()
        if (now := time.monotonic()) >= self._next:
            self._next = now + HEARTBEAT
            # Not synced to disk: that would slow the step, and a lost update does no harm.
            beside = self._path.with_name(".progress.json")
            with contextlib.suppress(OSError):  # a full disk
                beside.write_text(json.dumps({"step": self._done, "steps": self._total, "at": time.time()}))
                beside.replace(self._path)

    def on_epoch(self, rows: Sequence[Mapping[str, Any]], first: int, last: int | None) -> None:
        """Print the line of the previous epoch, whose row is now complete."""
        if not self._show or len(rows) <= self._shown:
            return
        self._shown, row = len(rows), rows[-1]
        total = f"/{self._epochs}" if self._epochs else ""
        parts = [f"epoch {row['epoch']}{total}", f"{row['throughput']:,.0f} samples/s"]
        names = {"train_loss": "train loss", "test_loss": "test loss", "test_accuracy": "test accuracy"}
        parts += [f"{label} {row[name]:.4f}" for name, label in names.items() if row.get(name) is not None]
        line = "  ".join(parts)
        with contextlib.suppress(OSError):  # a log on a full disk does not stop the run
            if self._bar is not None:
                self._bar.write(line, file=sys.stdout)
            else:
                print(line, flush=True)

    def on_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.on_epoch(rows, 0, None)
        self._close_bar()

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _is_live() -> bool:
    """Whether the output is a terminal or a notebook, not a log."""
    if sys.stderr.isatty():
        return True
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None) is not None
