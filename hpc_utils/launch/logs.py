"""The ends of logs."""

from __future__ import annotations

import re
from pathlib import Path

_SIZE = 65_536  # bytes of a log's end that are read


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log without colours; "" if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _SIZE))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(without_colours(text).splitlines()[-lines:])


def last_words(log: Path, most: int) -> str:
    """The last words of a log, on one line."""
    return " ".join(tail(log, most).split()[-most:])


def without_colours(text: str) -> str:
    """`text` without ANSI colour codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
