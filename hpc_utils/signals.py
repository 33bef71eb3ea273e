"""Signals that ask a run to stop in order: they are heard, and heeded where nothing is lost.

SIGUSR1 says that the time is nearly up: save, and run me again. SIGTERM says: save, and that is all. No torch
here: launchers hear them too.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from signal import SIGHUP, SIGTERM, SIGUSR1, Signals

HEEDED = (SIGUSR1, SIGTERM)  # the latter outranks the former: whoever cancels does not want it run again
AGAIN = 75  # exit code: EX_TEMPFAIL of sysexits.h

_early: list[Signals] = []


class Stopped(BaseException):
    """The run has stopped in order, its checkpoint is on disk. No error: nobody shall swallow it as one.

    Attributes:
        signal: what asked for it. epoch: that it was in, from 1. step: how many of its steps were done.
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
    """What a process that stopped in order says: 75 where it wants to be run again, else 128 + signal as a shell."""
    return AGAIN if number == SIGUSR1 else 128 + number


def strongest(heard: Sequence[Signals]) -> Signals | None:
    """Which of the signals heard is to be heeded."""
    return max(heard, key=HEEDED.index, default=None)


@contextlib.contextmanager
def listen() -> Iterator[list[Signals]]:
    """The list yielded grows by each signal that arrives, which then does nothing else; undone at the end.

    A thread other than the main one hears nothing: signals are somebody else's there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    heard, _early[:] = list(_early), []
    with _handled(HEEDED, lambda number, _: heard.append(Signals(number))):
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)
        try:
            yield heard
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """In the block SIGTERM and SIGHUP do what Ctrl-C does: raise KeyboardInterrupt, after which one can tidy up.

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
    """`handler` handles these in the block; what did before does again after it."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)


def remember() -> None:
    """A SIGUSR1 no longer ends this process: it is kept for the next `listen`. SIGTERM ends it as ever."""
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(SIGUSR1, lambda number, _: _early.append(Signals(number)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGUSR1})
    # As it ends, Python puts back the handlers that kill: a run that is complete would look as if it had failed.
    atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, {SIGUSR1})


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Processes started in here are born with SIGUSR1 blocked: one that comes before they listen waits for them."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
