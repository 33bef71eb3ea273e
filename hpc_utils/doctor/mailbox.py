"""What the ranks of the doctor exchange."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

POLL = 0.02  # s between two reads of the store


class Mailbox:
    """JSON values in the launcher's key-value store.

    The process group is not used, because it is checked itself and may hang. Every wait has a timeout.
    """

    def __init__(self, store: dist.Store) -> None:
        self._store = dist.PrefixStore("doctor", store)

    @classmethod
    def connect(cls, seconds: float) -> Mailbox:
        """To the store that torchrun serves; a private one without a launcher.

        Raises:
            OSError, RuntimeError: the store cannot be reached within `seconds`.
        """
        if int(os.environ.get("WORLD_SIZE", 1)) == 1:
            return cls(dist.HashStore())
        return cls(next(dist.rendezvous("env://", timeout=timedelta(seconds=seconds)))[0])

    def put(self, key: str, value: Any) -> None:
        self._store.set(key, json.dumps(value))

    def get(self, key: str, seconds: float) -> Any:
        """Raises TimeoutError if no rank puts `key` within `seconds`."""
        end = time.monotonic() + seconds
        while not self._store.check([key]):
            if time.monotonic() > end:
                raise TimeoutError(f"no value of {key} within {seconds:.0f} s")
            time.sleep(POLL)
        return json.loads(self._store.get(key))

    def collect(self, topic: str, ranks: Iterable[int], seconds: float) -> dict[int, Any]:
        """{rank: value of `<topic>/<rank>`} of the ranks that put one within `seconds`."""
        end = time.monotonic() + seconds
        received = {}
        for rank in ranks:
            with suppress(TimeoutError):
                received[rank] = self.get(f"{topic}/{rank}", end - time.monotonic())
        return received
