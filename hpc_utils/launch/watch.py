"""A run as seen from the terminal that started it: its log's lines, and a bar with the time left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def follow(title: str, *, lines: bool = True) -> Iterator[Callable[[dict, str], None]]:
    """A `watch` for `local.run`: a bar on a terminal, and in logs just what rank 0 prints."""
    from tqdm import tqdm

    bar = tqdm(total=1, desc=title, unit="step", leave=False, dynamic_ncols=True, disable=not sys.stderr.isatty())
    bar.bar_format = "{desc} |{bar}| {percentage:3.0f}% {postfix}"

    def watch(progress: dict, new: str) -> None:
        if lines and new:
            bar.write(new.rstrip("\n"), file=sys.stderr)
        if progress.get("steps"):
            bar.total, bar.n = progress["steps"], progress["step"]
        bar.refresh()

    try:
        yield watch
    finally:
        bar.close()
