"""Decides when a run checkpoints or stops, at the same step on all ranks.

`CheckpointPolicy` decides, `Consensus` reduces the requests over ranks, and the trainer acts on the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from signal import Signals

import torch

from hpc_utils.config import RunConfig
from hpc_utils.signals import HANDLED, strongest

from .ranks import Ranks

PERIOD = 1.0  # s between two reductions, if steps are shorter


class StopRequest(IntEnum):
    """A rank's request; larger values are more urgent."""

    NONE = 0
    CHECKPOINT = 1
    REQUEUE = 2  # checkpoint and stop: SIGUSR1
    STOP = 3  # checkpoint and stop: SIGTERM

    @property
    def signal(self) -> Signals:
        """The signal that caused a request to stop."""
        return HANDLED[self - StopRequest.REQUEUE]

    @classmethod
    def of(cls, received: Signals | None) -> StopRequest:
        return cls.NONE if received is None else cls(cls.REQUEUE + HANDLED.index(received))


class Consensus:
    """The most urgent request over all ranks, by a host-side reduction of two numbers about once a second.

    Every rank calls `poll` equally often. The second number is the time since the last reduction on the slowest rank,
    from which all ranks derive the same number of calls per second. `clock`: in s, without what the run waited.
    """

    def __init__(self, ranks: Ranks, clock: Callable[[], float] = time.monotonic) -> None:
        self._ranks = ranks
        self._clock = clock
        self._every = 1
        self.begin()

    def begin(self) -> None:
        """Restart the clock: time before this call does not count."""
        self._calls = 0
        self._since = self._clock()

    def poll(self, request: StopRequest) -> StopRequest:
        """Return the request over all ranks if a reduction is due, else `NONE`."""
        if self._ranks.world_size == 1:
            return request
        self._calls += 1
        if self._calls < self._every:
            return StopRequest.NONE
        agreed, elapsed = self._ranks.max(torch.tensor([request, self._clock() - self._since], dtype=torch.float64))
        per_period = self._calls * PERIOD / max(float(elapsed), 1e-9)
        self._every = max(1, min(2 * self._every, round(per_period)))
        self.begin()
        return StopRequest(int(agreed))

    def ask(self, request: StopRequest) -> StopRequest:
        """Reduce immediately and return the request over all ranks."""
        return StopRequest(int(self._ranks.max(torch.tensor([request]))))


class CheckpointPolicy:
    """Every rank calls it at the same points: between steps, epochs and evaluation batches.

    Args:
        received: signals received so far; grows during training.
        writing: whether the last checkpoint is still being written (rank 0). clock: of `Consensus`.
    """

    def __init__(
        self,
        config: RunConfig,
        ranks: Ranks,
        received: Sequence[Signals],
        writing: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._is_main = ranks.is_main
        self._received = received
        self._writing = writing
        self._steps = Consensus(ranks, clock)
        self._evaluation = Consensus(ranks, clock)
        self.taken(0)

    def taken(self, epochs: int) -> None:
        """Record that a checkpoint of `epochs` whole epochs was taken."""
        self._due = False
        self._epochs = epochs
        self._at = time.monotonic()
        self._steps.begin()

    def begin(self) -> None:
        """Start a sequence of steps or evaluation batches."""
        self._steps.begin()
        self._evaluation.begin()

    def between_steps(self) -> StopRequest:
        return self._steps.poll(self._request())

    def between_epochs(self, done: int) -> StopRequest:
        """Decide after `done` whole epochs."""
        every = self._config.checkpoint_every
        self._due |= bool(every) and done - self._epochs >= every
        return self._steps.ask(self._request())

    def in_evaluation(self) -> StopRequest:
        """Decide between evaluation batches: only requests to stop count."""
        return self._evaluation.poll(StopRequest.of(strongest(self._received)))

    def _request(self) -> StopRequest:
        if received := strongest(self._received):
            return StopRequest.of(received)
        if not self._is_main:  # only rank 0 knows whether the last checkpoint is still being written
            return StopRequest.NONE
        minutes = self._config.checkpoint_minutes
        self._due |= bool(minutes) and time.monotonic() - self._at >= 60 * minutes
        return StopRequest.CHECKPOINT if self._due and not self._writing() else StopRequest.NONE
