"""A look in a box of time: whatever it does, whoever asked goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def boxed(look: Callable[[], Any], seconds: float) -> dict[str, Any]:
    """{"facts": what `look` returned}, or {"fault": what it raised}, or {"stuck": seconds} and it is left behind."""
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["facts"] = look()
        except Exception as error:
            box["fault"] = f"{type(error).__name__}: {error}"[:300]

    thread = threading.Thread(target=run, daemon=True)  # a system call that hangs cannot be ended
    thread.start()
    thread.join(seconds)
    return dict(box) or {"stuck": seconds}
