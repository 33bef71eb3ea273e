"""How ranks come to do the same thing at the same step, though only one of them may know why."""

from __future__ import annotations

import time
from enum import IntEnum
from signal import Signals

import torch

from hpc_utils.signals import HEEDED

from .ranks import Ranks

PERIOD = 1.0  # s between two agreements, where steps are shorter than that


class Wish(IntEnum):
    """What a rank asks for, the more urgent the greater."""

    NOTHING = 0
    CHECKPOINT = 1
    RUN_AGAIN = 2  # checkpoint and stop: SIGUSR1
    STOP = 3  # checkpoint and stop: SIGTERM

    @property
    def signal(self) -> Signals:
        """What asked for it (of those wishes that stop the run)."""
        return HEEDED[self - Wish.RUN_AGAIN]

    @classmethod
    def of(cls, number: Signals) -> Wish:
        """What a signal asks for."""
        return cls(Wish.RUN_AGAIN + HEEDED.index(number))


class Agreement:
    """The most urgent wish of all ranks, found about once a second by a reduction of two numbers on the host.

    Every rank calls `reach` equally often. How many calls make a second, the ranks find together as they go:
    each reduction also carries the time since the last one, as the slowest saw it.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._every = ranks, 1
        self.begin()

    def begin(self) -> None:
        """The calls that follow are evenly spaced: something else took its time before."""
        self._calls, self._since = 0, time.monotonic()

    def reach(self, wish: Wish) -> Wish:
        """The ranks' wish, if it is time to ask them, else `NOTHING`."""
        if self._ranks.world_size == 1:
            return wish
        self._calls += 1
        if self._calls < self._every:
            return Wish.NOTHING
        agreed, elapsed = self._ranks.max(torch.tensor([wish, time.monotonic() - self._since], dtype=torch.float64))
        a_second = self._calls * PERIOD / max(float(elapsed), 1e-9)
        self._every = max(1, min(2 * self._every, round(a_second)))
        self.begin()
        return Wish(int(agreed))

    def reach_now(self, wish: Wish) -> Wish:
        """The ranks' wish, asked at once."""
        return Wish(int(self._ranks.max(torch.tensor([wish], dtype=torch.float64))))
