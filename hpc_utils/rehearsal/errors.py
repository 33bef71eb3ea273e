"""What goes wrong with a rehearsal cluster, told with the end of the log that knows why."""

from __future__ import annotations

from pathlib import Path


class ClusterError(RuntimeError):
    """The cluster cannot be started, found or changed; the message says what to do."""

    exit_code = 2


class KilledError(ClusterError):
    """The cluster was killed; `down` clears what it left, and so does `up`."""


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of `log`, indented, under its path; only the path where it is empty or missing."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return "\n".join([f"{log}:", *(f"    {line}" for line in text.splitlines()[-lines:])])
