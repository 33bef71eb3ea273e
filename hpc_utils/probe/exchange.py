"""Words between ranks, through the launcher's key-value store.

Not through the process group: that is what is examined, and where it hangs its ranks must still be heard.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

POLL = 0.02  # s between looks at the store


class Silence(TimeoutError):
    """Rank 0 did not say what was waited for."""


class Exchange:
    """Post and collect JSON under topics; every wait has an end.

    Args:
        store: shared by all ranks. rank: this one's.
    """

    def __init__(self, store: dist.Store, rank: int = 0) -> None:
        self._store, self._rank = dist.PrefixStore("doctor", store), rank

    @classmethod
    def open(cls, seconds: float) -> Exchange:
        """The store that torchrun made for its ranks; one of its own for a process that nobody launched.

        Raises:
            OSError, RuntimeError: it cannot be reached within `seconds`.
        """
        rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if world == 1:
            return cls(dist.HashStore())
        return cls(next(dist.rendezvous("env://", timeout=timedelta(seconds=seconds)))[0], rank)

    def post(self, topic: str, word: Any) -> None:
        """This rank's word on `topic`."""
        self._store.set(f"{topic}/{self._rank}", json.dumps(word))

    def collect(self, topic: str, ranks: Iterable[int], seconds: float) -> dict[int, Any]:
        """{rank: its word} of those of `ranks` that have posted within `seconds`."""
        end = time.monotonic() + seconds
        heard: dict[int, Any] = {}
        missing = list(ranks)
        while True:
            for rank in missing:
                if self._store.check([f"{topic}/{rank}"]):
                    heard[rank] = json.loads(self._store.get(f"{topic}/{rank}"))
            missing = [rank for rank in missing if rank not in heard]
            if not missing or time.monotonic() > end:
                return heard
            time.sleep(POLL)

    def announce(self, topic: str, word: Any) -> None:
        """Rank 0's word to all."""
        self._store.set(topic, json.dumps(word))

    def hear(self, topic: str, seconds: float) -> Any:
        """What rank 0 announced on `topic`.

        Raises:
            Silence: nothing within `seconds`.
        """
        end = time.monotonic() + seconds
        while not self._store.check([topic]):
            if time.monotonic() > end:
                raise Silence(f"rank 0 said nothing about {topic} within {seconds:.0f} s")
            time.sleep(POLL)
        return json.loads(self._store.get(topic))
