"""Runs of a study take turns: all are started, then each computes a block of steps in every round, in random order.

    hpc ── turn ──▶ all ranks of one run          the ranks of the other runs wait (`train/turns.py`)
        ◀─ done ──

A machine's speed changes within seconds. Runs that are measured one after another meet different speeds; within a round
they meet the same one, so that the ratio of two runs in it is that of their work.
"""

from __future__ import annotations

import contextlib
import json
import queue
import random
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from signal import SIGTERM, Signals

from hpc_utils import provenance
from hpc_utils.provenance import nvml

from . import local
from .request import Request

LEAST = 0.04  # s of a block: its barrier takes 0.2 ms; the kernel counts processor time in units of 0.01 s
LEAST_ON_GPUS = 1.0  # s: NVML counts energy about ten times a second
MOST = 400  # rounds of a session
LOOK = 1.0  # s between looks at each run: for signals, and for ranks that have ended
ROOM = 1.5  # times the memory that the largest run took must be free for another one


Life = Generator[None, float, Path]  # of `local.attend`


def takes_turns(request: Request) -> bool:
    """Whether the run can."""
    config = request.config
    has_own_loop = config.parallel == "own" or request.is_script
    would_see_others = config.profile or config.monitor_seconds
    works_ahead = config.loader_workers  # while other runs compute
    limits_links = config.link_gbit is not None  # for one run at a time
    return not (has_own_loop or would_see_others or works_ahead or limits_links)


@dataclass
class Member:
    """A run that takes turns: its life, and a connection to each of its ranks.

    Attributes:
        waiting: the ranks that wait for their turn. steps: of an epoch. step_seconds: T of a step in the round before.
        had_turn: or went on without one, after a signal. error: what ended the run; None of a complete one.
    """

    request: Request
    life: Life
    ranks: dict[int, Connection] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    steps: int = 1
    step_seconds: float = 0.0
    had_turn: bool = False
    is_over: bool = False
    error: Exception | None = None
    looked: float = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether all of its ranks wait for their turn."""
        return len(self.waiting) == self.request.layout.ranks

    def look(self, seconds: float | None = 0.0) -> None:
        """Look after its ranks, for at most so long; None, the first time: start them."""
        self.looked = time.monotonic()
        try:
            self.life.send(seconds)
        except StopIteration:
            self.is_over = True
        except Exception as error:
            self.is_over = True
            self.error = error

    def hear(self, connection: Connection) -> None:
        """Take a rank's message: it waits, or its process has ended."""
        rank = next(number for number, other in self.ranks.items() if other is connection)
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            del self.ranks[rank]
            for other in self.waiting:  # which would wait for ever, if that one has failed
                self.ranks.pop(other).close()
            self.waiting.clear()
            return
        self.waiting.add(rank)
        self.steps = message["steps"] or 1
        self.step_seconds = message["step_seconds"]

    def answer(self, message: Sequence | None) -> None:
        """Give its ranks their turn; None: they need no further one."""
        self.had_turn = self.had_turn or self.is_ready
        self.waiting.clear()
        for connection in self.ranks.values():
            with contextlib.suppress(OSError):
                connection.send_bytes(json.dumps(message).encode())


class Session:
    """Runs that take turns with each other.

    Args:
        received: signals that this process receives; grows. With the first one all runs go on at once, to their checkpoints.
        host: the address at which ranks find this process.
    """

    def __init__(self, received: list[Signals], host: str = "127.0.0.1") -> None:
        self._received = received
        self._key = secrets.token_bytes(16)
        self._listener = Listener((host, 0), backlog=64, authkey=self._key)
        self._arrivals: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._id = f"session-{secrets.token_hex(6)}"
        self._members: list[Member] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """For `workspace.Launch.turns`."""
        host, port = self._listener.address
        return f"{host} {port} {self._key.hex()}"

    def run(
        self, runs: Iterable[tuple[Request, Life]], watch: Callable[[int, int], None]
    ) -> dict[str, Exception | None]:
        """Make the runs, each a request and its life with this `address`, which has not begun.

        Args:
            watch: called with each round's number and an estimate of how many there are.

        Returns:
            {run id: the error that ended it, or None}; without the runs that had no turn: there was no memory for them, or they
            ended before.
        """
        free = _free_memory()
        largest = [0] * len(free)
        try:
            for request, life in runs:
                if self._received or any(size < ROOM * most for size, most in zip(free, largest, strict=True)):
                    break
                self._admit(Member(request, life))
                before = free
                free = _free_memory()
                largest = [max(most, then - now) for most, then, now in zip(largest, before, free, strict=True)]
            self._rounds(watch)
            self._end()
        except BaseException as error:
            self._stop(error)
            raise
        finally:
            self._listener.close()
        return {member.request.run_id: member.error for member in self._members if member.had_turn}

    def _accept(self) -> None:
        while True:
            try:
                self._arrivals.put(self._listener.accept())
            except (AuthenticationError, EOFError, ConnectionError):
                continue
            except OSError:  # closed
                return

    def _admit(self, member: Member) -> None:
        """Start a run, and wait until all of its ranks wait for their first turn, or it has ended."""
        self._members.append(member)
        member.look(None)
        while len(member.ranks) < member.request.layout.ranks and not member.is_over:
            member.look(local.POLL)
            with contextlib.suppress(queue.Empty, EOFError, OSError):
                connection = self._arrivals.get_nowait()
                message = json.loads(connection.recv_bytes())
                if message["run"] == str(member.request.path):  # else of a run that has failed as it started
                    member.ranks[message["rank"]] = connection
        self._until_ready(member)

    def _until_ready(self, member: Member) -> None:
        """Until all of the run's ranks wait for their next turn, or the run has ended."""
        while not (member.is_ready or member.is_over):
            open_connections = [c for rank, c in member.ranks.items() if rank not in member.waiting]
            if not open_connections:  # it ends: nobody computes until it has
                member.look(local.POLL)
            for connection in wait(open_connections, LOOK / 4) if open_connections else ():
                member.hear(connection)
            self._look_around()

    def _look_around(self) -> None:
        """Look after the run that was looked after longest ago, if that is `LOOK` ago."""
        alive = [member for member in self._members if not member.is_over]
        longest_ago = min(alive, key=lambda member: member.looked, default=None)
        if longest_ago and time.monotonic() > longest_ago.looked + LOOK:
            longest_ago.look()

    def _rounds(self, watch: Callable[[int, int], None]) -> None:
        number = blocks = 0
        epochs = max((member.request.config.epochs for member in self._members), default=1)
        while alive := [member for member in self._members if member.is_ready and not member.is_over]:
            for place, member in enumerate(random.sample(alive, len(alive)), 1):
                if self._received:
                    break
                member.answer((self._id, number, place, blocks))
                self._until_ready(member)
            if self._received:
                break
            number += 1
            if number == 1:  # of one step each, which tells how long they take, but of those that have failed
                blocks = block_count([member for member in alive if member.is_ready], epochs)
            watch(number, blocks * epochs + 1)

    def _end(self) -> None:
        """Let the runs go on without turns, to their end or the next checkpoint."""
        for member in self._members:
            member.answer(None)
        while alive := [member for member in self._members if not member.is_over]:
            for member in alive:
                member.look(local.POLL / len(alive))

    def _stop(self, error: BaseException) -> None:
        """Stop all runs: after the first Ctrl-C at a checkpoint, else at once."""
        if isinstance(error, KeyboardInterrupt):
            self._received.append(SIGTERM)
            with contextlib.suppress(KeyboardInterrupt):
                self._end()
        for member in self._members:
            if not member.is_over:
                with contextlib.suppress(BaseException):
                    member.life.throw(error)


def block_count(members: Sequence[Member], epochs: int) -> int:
    """How many blocks an epoch has: none is shorter than the least."""
    longest = [
        int(member.steps * member.step_seconds / (LEAST_ON_GPUS if member.request.on_gpus else LEAST))
        for member in members
    ]
    return max(1, min([*longest, MOST // epochs, *(member.steps for member in members)]))


def _free_memory() -> list[int]:
    """B that are free on this machine, then on each of its GPUs."""
    import psutil

    gpus = nvml.free_memory() if provenance.hardware().gpus else ()  # NVML's library may be there without its driver
    return [psutil.virtual_memory().available, *gpus]
