"""A rank's side of turns: its run computes a block of steps, then waits while the other runs of the study compute theirs.

`launch/turns.py` gives the turns. A rank waits for its message without using a core, its device, or the link.
"""

from __future__ import annotations

import json
from multiprocessing.connection import Client
from typing import NamedTuple

from hpc_utils.workspace import Launch


class Turn(NamedTuple):
    """The permission to compute one block.

    Attributes:
        session: id of the runs that take turns with each other. round: from 0, in which every run has a turn.
        place: in the order of this round, from 1. blocks: of an epoch, equal but for a step; 0: this block is one step.
    """

    session: str
    round: int
    place: int
    blocks: int


class Turns:
    """The turns of this rank's run; without a launcher that gives them, the whole run is one.

    Args:
        launch: the launcher's settings for this process.
    """

    def __init__(self, launch: Launch, rank: int) -> None:
        self._connection = None
        self._end: int | None = None  # step of the epoch at which the block ends
        if launch.turns:
            host, port, key = launch.turns.split()
            self._connection = Client((host, int(port)), authkey=bytes.fromhex(key))
            self._send(run=launch.run, rank=rank)

    def take(self, done: int, steps: int | None, step_seconds: float) -> Turn | None:
        """Wait for this run's turn, which starts after `done` of an epoch's `steps`; None: to be run as one alone.

        Args:
            step_seconds: of the block before; 0 at the first.

        Raises:
            EOFError: the launcher has ended.
        """
        if self._connection is None:
            return None
        self._send(steps=steps, step_seconds=step_seconds)
        answer = json.loads(self._connection.recv_bytes())
        if answer is None:
            self._connection = self._end = None
            return None
        turn = Turn(*answer)
        self._end = None
        if steps:
            ends = (number * steps // turn.blocks for number in range(1, turn.blocks + 1))
            self._end = next(end for end in ends if end > done) if turn.blocks else done + 1
            self._end %= steps  # an epoch's end is no end between two steps
        return turn

    def is_over(self, done: int) -> bool:
        """Whether the block ends after `done` steps of the epoch, and another one follows."""
        return done > 0 and done == self._end

    def _send(self, **message: str | float | None) -> None:
        self._connection.send_bytes(json.dumps(message).encode())
