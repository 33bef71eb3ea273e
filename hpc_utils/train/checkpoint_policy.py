"""When a run checkpoints or stops: at the same step on all ranks, although only one of them may know why.

`CheckpointPolicy` decides, `Consensus` joins the ranks' requests, and the trainer acts on the answer.
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

PERIOD = 1.0  # s between two reductions, where steps are shorter than that


class StopRequest(IntEnum):
    """What a rank asks for; the larger value is the more urgent."""

    NONE = 0
    CHECKPOINT = 1
    REQUEUE = 2  # checkpoint and stop: SIGUSR1
    STOP = 3  # checkpoint and stop: SIGTERM

    @property
    def signal(self) -> Signals:
        """The signal behind a request that stops the run."""
        return HANDLED[self - StopRequest.REQUEUE]

    @classmethod
    def of(cls, received: Signals | None) -> StopRequest:
        return cls.NONE if received is None else cls(cls.REQUEUE + HANDLED.index(received))


class Consensus:
    """The most urgent request of all ranks, found about once a second by a reduction of two numbers on the host.

    Every rank calls `poll` equally often. Each reduction also carries the time since the last one on the slowest rank,
    from which the ranks derive how many calls make a second.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._every = ranks, 1
        self.begin()

    def begin(self) -> None:
        """The calls that follow are evenly spaced; the time before them does not count."""
        self._calls, self._since = 0, time.monotonic()

    def poll(self, request: StopRequest) -> StopRequest:
        """The ranks' request if a reduction is due, else `NONE`."""
        if self._ranks.world_size == 1:
            return request
        self._calls += 1
        if self._calls < self._every:
            return StopRequest.NONE
        agreed, elapsed = self._ranks.max(
            torch.tensor([request, time.monotonic() - self._since], dtype=torch.float64)
        )
        per_period = self._calls * PERIOD / max(float(elapsed), 1e-9)
        self._every = max(1, min(2 * self._every, round(per_period)))
        self.begin()
        return StopRequest(int(agreed))

    def ask(self, request: StopRequest) -> StopRequest:
        """The ranks' request, by a reduction at once."""
        return StopRequest(int(self._ranks.max(torch.tensor([request], dtype=torch.float64))))


class CheckpointPolicy:
    """Every rank asks at the same points: between steps, epochs and evaluation batches.

    Args:
        received: the signals so far; grows during training.
        writing: rank 0's: whether the last checkpoint is still being written.
    """

    def __init__(
        self, config: RunConfig, ranks: Ranks, received: Sequence[Signals], writing: Callable[[], bool]
    ) -> None:
        self._config, self._is_main, self._received, self._writing = config, ranks.is_main, received, writing
        self._steps, self._evaluation = Consensus(ranks), Consensus(ranks)
        self.taken(0)

    def taken(self, epochs: int) -> None:
        """There is a checkpoint that holds `epochs` whole epochs."""
        self._due, self._epochs, self._at = False, epochs, time.monotonic()
        self._steps.begin()

    def begin(self) -> None:
        """Steps, or evaluation batches, follow each other from now on."""
        self._steps.begin()
        self._evaluation.begin()

    def between_steps(self) -> StopRequest:
        return self._steps.poll(self._request())

    def between_epochs(self, done: int) -> StopRequest:
        """After `done` whole epochs, where the ranks wait for each other anyway."""
        every = self._config.checkpoint_every
        self._due |= bool(every) and done - self._epochs >= every
        return self._steps.ask(self._request())

    def in_evaluation(self) -> StopRequest:
        """Between evaluation batches a run only stops."""
        return self._evaluation.poll(StopRequest.of(strongest(self._received)))

    def _request(self) -> StopRequest:
        if received := strongest(self._received):
            return StopRequest.of(received)
        if not self._is_main:  # rank 0 alone knows whether the last one is still being written
            return StopRequest.NONE
        minutes = self._config.checkpoint_minutes
        self._due |= bool(minutes) and time.monotonic() - self._at >= 60 * minutes
        return StopRequest.CHECKPOINT if self._due and not self._writing() else StopRequest.NONE
