"""Signals that ask a run to stop in order: they are collected, and acted on where nothing is lost.

SIGUSR1: the time is nearly up, checkpoint and run again. SIGTERM: checkpoint and end. No torch here: launchers
collect them too.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from signal import SIGHUP, SIGTERM, SIGUSR1, Signals

HANDLED = (SIGUSR1, SIGTERM)  # the latter outranks the former: a cancelled run does not run again
AGAIN = 75  # exit code: EX_TEMPFAIL of sysexits.h

_early: list[Signals] = []


class Stopped(BaseException):
    """The run has stopped in order, its checkpoint is on disk. No `Exception`: code that catches those must not catch it.

    Attributes:
        signal: what asked for it. epoch: the one it stopped in, from 1. step: how many of its steps were done.
    """

    def __init__(self, signal: Signals, epoch: int, step: int) -> None:
        super().__init__(signal, epoch, step)
        self.signal, self.epoch, self.step = signal, epoch, step

    def __str__(self) -> str:
        return f"{self.where}: checkpointed"

    @property
    def where(self) -> str:
        """What happened when, in words."""
        return f"{self.signal.name} at epoch {self.epoch}, step {self.step}"

    @property
    def exit_code(self) -> int:
        return exit_code(self.signal)


def exit_code(number: Signals) -> int:
    """Of a process that stopped in order: 75 if it is to run again, else 128 + signal as in a shell."""
    return AGAIN if number == SIGUSR1 else 128 + number


def strongest(received: Sequence[Signals]) -> Signals | None:
    """Which of the signals to act on."""
    return max(received, key=HANDLED.index, default=None)


@contextlib.contextmanager
def listen() -> Iterator[list[Signals]]:
    """The yielded list grows by each signal that arrives, which has no other effect; undone at the end.

    In a thread other than the main one it stays empty: Python delivers signals to the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    received, _early[:] = list(_early), []
    with _handled(HANDLED, lambda number, _: received.append(Signals(number))):
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        try:
            yield received
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """In the block SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does, so that the program can clean up.

    In a thread other than the main one nothing changes.
    """

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt(Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled((SIGTERM, SIGHUP), interrupt):
        yield


@contextlib.contextmanager
def _handled(numbers: Sequence[Signals], handler: Callable[[int, object], None]) -> Iterator[None]:
    """`handler` handles these in the block; the former handlers are restored after it."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)


def remember() -> None:
    """From now on SIGUSR1 does not end this process: it is kept for the next `listen`. SIGTERM still ends it."""
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(SIGUSR1, lambda number, _: _early.append(Signals(number)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGUSR1})
    # At its end Python restores the handlers that kill: a complete run would look as if it had failed.
    atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, {SIGUSR1})


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Processes that are started in the block begin with SIGUSR1 blocked: it stays pending until they listen."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
