"""Checkpoints on disk: written in the background, whole or not at all, the last two kept, checked when read.

`checkpoints/step000000120-9f2c41d07a3be586.pt` is what `torch.save` makes of the state after 120 steps, named by a
digest of its bytes: torch itself loads a file with a flipped bit as if nothing were wrong.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch

from hpc_utils.records import atomic

from .pytree import tensors

VERSION = 2  # of what a checkpoint holds
KEPT = 2

State = dict[str, Any]


class CheckpointError(RuntimeError):
    """A checkpoint could not be written when it had to be, or does not fit what is trained."""


class Damaged(ValueError):
    """This is no whole checkpoint."""


class Checkpoints:
    """The checkpoints of one run; used by rank 0 only.

    Args:
        folder: where they lie. remark: called with what a reader of the run should know.
    """

    def __init__(self, folder: Path, remark: Callable[[str], None]) -> None:
        self.folder, self._remark = folder, remark
        self._thread: threading.Thread | None = None
        self._problem = ""

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, step: int, state: State) -> None:
        """Begin to write `state`, which must not change from now on; wait first for one that is being written."""
        self.wait()
        self._problem = ""
        self._thread = threading.Thread(target=self._write, args=(step, state), name="checkpoint")
        self._thread.start()

    def wait(self) -> str:
        """Wait until the one that is being written is on disk; what prevented it, or ""."""
        if self._thread is not None:
            self._thread.join()
        return self._problem

    def newest(self) -> tuple[Path, State] | None:
        """The newest good one. A damaged one is set aside, with a remark; unfinished ones are removed."""
        self.wait()
        for unfinished in self.folder.glob(".*"):
            unfinished.unlink()
        damaged = False
        for path in reversed(self._all()):
            try:
                found = path, read(path)
            except Damaged as error:
                damaged = True
                path.replace(path.with_name(f"damaged-{path.name}"))
                self._remark(f"the checkpoint {path.name} is damaged ({error}): set aside")
                continue
            if damaged:
                self._remark(f"the one before it, {path.name}, is good")
            return found
        if damaged:
            self._remark("no checkpoint is left: training starts from the beginning")
        return None

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step*.pt"))

    def _write(self, step: int, state: State) -> None:
        name, unnamed = f"step{step:09d}", self.folder / ".unnamed.pt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(self.folder).free < sum(
                tensor.nbytes for tensor in tensors(state)
            ):  # not to fill it first: records go there too
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            digests: list[str] = []
            atomic.write(unnamed, lambda file: digests.append(_save({"version": VERSION, **state}, file)))
            same_step = list(self.folder.glob(f"{name}-*.pt"))
            path = unnamed.replace(self.folder / f"{name}-{digests[0]}.pt")
            _sync(self.folder)
        except Exception as error:  # whatever it is, training can go on
            self._problem = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            kept = self._all()
            stays = f"{kept[-1].name} stays the newest" if kept else "there is none yet"
            self._remark(f"WARNING: the checkpoint of step {step} could not be written ({self._problem}): {stays}")
            return
        kept = [one for one in self._all() if one == path or one not in same_step][-KEPT:]
        for old in {*self._all()} - {*kept}:
            with contextlib.suppress(OSError):
                old.unlink()


def read(path: Path) -> State:
    """The state in a checkpoint, on the host.

    Raises:
        Damaged: it cannot be read, is not what was written, or was written by another version of this code.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, _hash).hexdigest()
            if not path.stem.endswith(f"-{digest}"):
                raise Damaged(f"its {file.tell()} bytes do not match its digest")
            file.seek(0)
            state = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Damaged(f"it cannot be read: {error.strerror}") from None
    except (LookupError, RuntimeError, TypeError, pickle.UnpicklingError) as error:  # whole, but foreign
        raise Damaged(f"torch cannot load it: {str(error).partition('.')[0]}") from None
    if state["version"] != VERSION:
        raise Damaged(f"it is of version {state['version']}, this code reads {VERSION}")
    return state


def _hash() -> Any:
    return hashlib.blake2b(digest_size=8)


def _save(state: State, file: IO[bytes]) -> str:
    """`torch.save`; the digest of what it wrote.

    An OSError is raised as such: torch would turn it into one about positions in its zip file.
    """
    sink = _Sink(file)
    torch.save(state, sink)
    if sink.error:
        raise sink.error
    return sink.digest.hexdigest()


class _Sink:
    """Writes through to a file until that fails; the error waits for `_save`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest, self.error = file, _hash(), None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        self.digest.update(data)
        return len(data)

    def flush(self) -> None:
        pass


def _sync(folder: Path) -> None:
    """The renaming too is on disk when this returns."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
