"""How far a run is: a bar for a person, a line an epoch for a log, a small file for launchers."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

HEARTBEAT = 1.0  # s between renewals of progress.json


class Progress:
    """Rank 0's progress; silent on other ranks.

    Args:
        path: `progress.json` to renew once a second, or None.
        epochs, steps: what there is to do. done: steps of it that a former attempt did.
    """

    def __init__(self, path: Path | None, epochs: int, steps: int, *, done: int = 0, show: bool) -> None:
        self._path, self._total, self._done, self._next = path, epochs * steps, done, 0.0
        self._epochs, self._show, self._bar = epochs, show, None
        if show and self._total and _is_live():
            from tqdm import tqdm

            style = {"unit": "step", "file": sys.stderr, "leave": False, "dynamic_ncols": True}
            self._bar = tqdm(total=self._total, initial=done, **style)

    def step(self) -> None:
        """One step is done."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()
        if self._path is not None and (now := time.monotonic()) >= self._next:
            self._next = now + HEARTBEAT
            # Not synced to disk: a lost heartbeat costs nothing, a sync would cost the step.
            beside = self._path.with_name(".progress.json")
            with contextlib.suppress(OSError):  # a full disk
                beside.write_text(json.dumps({"step": self._done, "steps": self._total, "at": time.time()}))
                beside.replace(self._path)

    def epoch(self, row: dict) -> None:
        """An epoch is recorded."""
        if not self._show:
            return
        total = f"/{self._epochs}" if self._epochs else ""
        parts = [f"epoch {row['epoch']}{total}", f"{row['throughput']:,.0f} samples/s"]
        names = {"train_loss": "train loss", "test_loss": "test loss", "test_accuracy": "test accuracy"}
        parts += [f"{label} {row[name]:.4f}" for name, label in names.items() if row.get(name) is not None]
        line = "  ".join(parts)
        with contextlib.suppress(OSError):  # a log on a full disk; what is measured lies elsewhere
            if self._bar is not None:
                self._bar.write(line, file=sys.stdout)
            else:
                print(line, flush=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _is_live() -> bool:
    """Whether somebody is looking: a terminal or a notebook's kernel, but no log of a job."""
    if sys.stderr.isatty():
        return True
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return getattr(shell, "kernel", None) is not None
