"""Sums gradients over ranks with MPI_Allreduce: in place, in buckets of one flat array, during the backward pass if wanted.

MPI is not finalised when Python exits: a rank that raises would wait there for the others. Instead mpiexec or srun ends all
ranks when one leaves without `MPI.Finalize()`, which a program calls at its end.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import mpi4py
import numpy as np

mpi4py.rc.finalize = False  # before the next import, which initialises MPI
from mpi4py import MPI  # noqa: E402

PAUSE = 5e-5  # s between two tests of a request by a thread that shares its core


class CommunicationError(RuntimeError):
    """Ranks do not fit together, or one did not take part in time."""


def wait(request: MPI.Request, what: str, timeout: float = 600.0, pause: float = 0.0) -> None:
    """Complete `request`. MPI makes progress only inside its calls, so that the request is tested in a loop.

    Args:
        what: names the operation in the error. pause: seconds between two tests, for others to use the core.

    Raises:
        CommunicationError: it took more than `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not request.Test():
        if time.monotonic() > deadline:
            raise CommunicationError(
                f"{what} took more than {timeout:g} s: a rank hangs or takes another path "
                "(`py-spy dump --pid PID` shows where each rank is)"
            )
        if pause:
            time.sleep(pause)


def agree(comm: MPI.Comm, what: str, mine: Any) -> None:
    """Compare `mine` over all ranks.

    Raises:
        CommunicationError: on every rank, if two ranks differ.
    """
    everyone = comm.allgather(mine)
    for rank, other in enumerate(everyone):
        if other != everyone[0]:
            raise CommunicationError(f"{what}: rank {rank} has {other}, rank 0 has {everyone[0]}")


class Allreduce:
    """Sums `gradients` over all ranks, in place. Each step calls `ready` for every slice, the last first, then `finish`.

    Args:
        gradients: flat and contiguous, equally long on all ranks.
        bucket_bytes: a message is sent when it has this many bytes, or at the array's beginning.
        overlap: a thread sums each bucket while the backward pass goes on; otherwise `finish` sums them.
        timeout: seconds that the sum of a bucket may take.

    Attributes:
        seconds: time in all-reduces so far. exposed: the part that the caller of `finish` waited.
    """

    def __init__(
        self, comm: MPI.Comm, gradients: np.ndarray, *, bucket_bytes: float, overlap: bool, timeout: float = 600.0
    ) -> None:
        agree(comm, "gradients (shape, type)", (gradients.shape, str(gradients.dtype)))
        self._comm, self._gradients = comm.Dup(), gradients
        self._bucket, self._timeout = bucket_bytes, timeout
        self._start = self._end = len(gradients)  # between them: final, and in no bucket yet
        self._buckets: queue.Queue[np.ndarray] = queue.Queue()
        self._error: Exception | None = None
        self.seconds = self.exposed = 0.0
        self._overlap = overlap and comm.size > 1
        if self._overlap:
            threading.Thread(target=self._progress, name="allreduce", daemon=True).start()

    def ready(self, part: slice) -> None:
        """The gradients of `part`, which ends where the previous one begins, are final."""
        if part.stop != self._start:
            raise ValueError(f"gradients up to {self._start} come next, not {part}")
        self._start = part.start
        if (self._end - part.start) * self._gradients.itemsize >= self._bucket or not part.start:
            self._buckets.put(self._gradients[part.start : self._end])
            self._end = part.start

    def finish(self) -> None:
        """Wait until all gradients are summed.

        Raises:
            CommunicationError: see `wait`.
        """
        begun = time.perf_counter()
        if self._overlap:
            self._buckets.join()
        else:
            while not self._buckets.empty():
                self._sum(self._buckets.get(), pause=0.0)
        if self._error:
            raise self._error
        self.exposed += time.perf_counter() - begun
        self._start = self._end = len(self._gradients)

    def _progress(self) -> None:
        while True:
            bucket = self._buckets.get()
            try:
                if not self._error:
                    self._sum(bucket, PAUSE)
            except Exception as error:  # raised by `finish`
                self._error = error
            self._buckets.task_done()

    def _sum(self, bucket: np.ndarray, pause: float) -> None:
        if self._comm.size == 1:
            return
        begun = time.perf_counter()
        request = self._comm.Iallreduce(MPI.IN_PLACE, bucket)
        wait(request, f"the sum of {bucket.nbytes} bytes of gradients", self._timeout, pause)
        self.seconds += time.perf_counter() - begun
