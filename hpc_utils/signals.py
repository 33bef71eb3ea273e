"""Collects the signals that ask a run to stop; the trainer and the launchers act on them later.

SIGUSR1: the time limit is near, checkpoint and requeue. SIGTERM: checkpoint and end. This module does not import torch,
because launchers use it too.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from signal import SIGHUP, SIGTERM, SIGUSR1, Signals

HANDLED = (SIGUSR1, SIGTERM)  # SIGTERM takes precedence: a cancelled run is not requeued
AGAIN = 75  # exit code: EX_TEMPFAIL of sysexits.h

_early: list[Signals] = []


class Stopped(BaseException):
    """The run stopped on a signal, with a checkpoint on disk. A BaseException, so that `except Exception` does not catch it.

    Attributes:
        signal: the signal received. epoch: current epoch, from 1. step: steps done in this epoch.
    """

    def __init__(self, signal: Signals, epoch: int, step: int) -> None:
        super().__init__(signal, epoch, step)
        self.signal = signal
        self.epoch = epoch
        self.step = step

    def __str__(self) -> str:
        return f"{self.where}: checkpointed"

    @property
    def where(self) -> str:
        """The signal, epoch and step as text."""
        return f"{self.signal.name} at epoch {self.epoch}, step {self.step}"

    @property
    def exit_code(self) -> int:
        return exit_code(self.signal)


def exit_code(number: Signals) -> int:
    """The exit code of a process stopped by a signal: 75 to be requeued, else 128 + signal as in a shell."""
    return AGAIN if number == SIGUSR1 else 128 + number


def strongest(received: Sequence[Signals]) -> Signals | None:
    """The signal to act on."""
    return max(received, key=HANDLED.index, default=None)


@contextlib.contextmanager
def listen() -> Iterator[list[Signals]]:
    """Collect signals in the yielded list instead of their default action, until the block ends.

    Outside the main thread the list stays empty, because Python delivers signals to the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    received = list(_early)
    _early.clear()
    with _handled(HANDLED, lambda number, _: received.append(Signals(number))):
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
        try:
            yield received
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP in the block, so that the program can clean up.

    Outside the main thread this has no effect.
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
    """Install `handler` in the block and restore the previous handlers afterwards."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, signal.SIG_DFL if former is None else former)


def remember() -> None:
    """Keep SIGUSR1 for the next `listen` instead of ending this process. SIGTERM still ends it."""
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(SIGUSR1, lambda number, _: _early.append(Signals(number)))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGUSR1})
    # At exit Python restores the default handlers, and a late signal would make a complete run look failed.
    atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, {SIGUSR1})


@contextlib.contextmanager
def waiting() -> Iterator[None]:
    """Start processes in the block with SIGUSR1 blocked; it stays pending until they listen."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {SIGUSR1})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
