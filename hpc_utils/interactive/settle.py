"""Waits for the engines' answers for a limited time; an engine that hangs is freed, and ended if that fails."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from . import group

if TYPE_CHECKING:
    from ipyparallel import AsyncResult, Client

GRACE = 0.5  # s that the others get after one engine has failed
# Signals for an engine that hangs, and the s until the next: its collective raises, its Python is interrupted, it ends.
MEASURES = ((group.HANG_UP.name, 4.0), ("SIGINT", 3.0), ("SIGKILL", 5.0))


def settle(client: Client, result: AsyncResult, timeout: float) -> list[int]:
    """Wait until every engine has answered `result`; the engines that were freed for it.

    An engine is freed when it takes longer than `timeout` s, or GRACE s after another one has failed: it may wait
    in a collective for that one. Ctrl-C frees all at once.

    Raises:
        TimeoutError: an engine does not answer and cannot be ended.
        KeyboardInterrupt: after the engines were freed.
    """
    interrupted = False
    try:
        _wait(result, timeout)
    except KeyboardInterrupt:
        interrupted = True
    freed = list(pending(result))
    for signal_name, seconds in MEASURES:
        for engine in pending(result):
            with contextlib.suppress(Exception):  # it has ended already, which its answer reports
                client.send_signal(signal_name, targets=[engine], block=False)
        result.wait(seconds)
    if interrupted:
        raise KeyboardInterrupt
    if left := list(pending(result)):
        raise TimeoutError(f"engines {left} do not answer and cannot be ended: close the set and start it again")
    return freed


def pending(result: AsyncResult) -> dict[int, AsyncResult]:
    """The engines that have not answered yet, each with its part of `result`."""
    return {engine: part for engine, part in parts(result).items() if not part.ready()}


def parts(result: AsyncResult) -> dict[int, AsyncResult]:
    """`result` engine by engine."""
    return dict(zip(result._targets, result.split(), strict=True))  # only _targets has the engines' numbers


def _wait(result: AsyncResult, timeout: float) -> None:
    until = time.monotonic() + timeout
    failed = False
    while not result.wait(0.02) and time.monotonic() < until:
        if not failed and any(part.ready() and part.exception() for part in parts(result).values()):
            failed, until = True, min(until, time.monotonic() + GRACE)
