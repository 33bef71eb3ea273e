"""What rank 0 prints while it measures; the other ranks' words go nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Say:
    """Lines on `out`; on `err`, where it is a terminal, what is being measured just now."""

    out: TextIO | None = None
    err: TextIO | None = None

    def now(self, what: str = "") -> None:
        """Replace the progress line; without `what` clear it."""
        if self.err and self.err.isatty():
            print(f"\r\x1b[K{f'  measuring {what} ...' if what else ''}", end="", file=self.err, flush=True)

    def line(self, text: str = "") -> None:
        """A line that stays."""
        if self.out:
            self.now()
            print(text, file=self.out, flush=True)


def size(number: float) -> str:
    """`4 B`, `256 KiB`, `1 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:g} {unit}"
        number /= 1024
    return f"{number:g} GiB"
