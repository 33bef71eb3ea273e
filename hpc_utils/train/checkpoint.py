"""Checkpoints on disk: written atomically in the background, verified when read; the last two are kept.

`checkpoints/step000000120-9f2c41d07a3be586.pt` is the state after 120 steps as `torch.save` writes it. The file name holds
a digest of its bytes, because `torch.load` does not detect a flipped bit.
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
from typing import Any

import torch

from hpc_utils.records import atomic

from .pytree import tensors

VERSION = 2  # of what a checkpoint holds
KEPT = 2

State = dict[str, Any]


class CheckpointError(RuntimeError):
    """The final checkpoint could not be written, or a checkpoint does not match the model."""


class Damaged(ValueError):
    """The file is not a complete checkpoint."""


class Checkpoints:
    """The checkpoints of one run; used by rank 0 only.

    Args:
        folder: their folder. remark: called with each message for the run's records.
    """

    def __init__(self, folder: Path, remark: Callable[[str], None]) -> None:
        self.folder = folder
        self._remark = remark
        self._thread: threading.Thread | None = None
        self._problem = ""

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, step: int, state: State) -> None:
        """Start writing `state` in the background; it must not change afterwards. Waits for the previous write."""
        self.wait()
        self._problem = ""
        self._thread = threading.Thread(target=self._write, args=(step, state), name="checkpoint")
        self._thread.start()

    def wait(self) -> str:
        """Wait for the current write. Returns the problem, or an empty string."""
        if self._thread is not None:
            self._thread.join()
        return self._problem

    def newest(self) -> tuple[Path, State] | None:
        """Load the newest good checkpoint. Damaged ones are renamed, with a remark; unfinished ones are removed."""
        self.wait()
        for unfinished in self.folder.glob(".*"):
            unfinished.unlink()
        for path in reversed(self._all()):
            try:
                return path, read_checkpoint(path)
            except Damaged as error:
                path.replace(path.with_name(f"damaged-{path.name}"))
                self._remark(f"checkpoint {path.name} is damaged ({error}): renamed to damaged-{path.name}")
        return None

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step*.pt"))

    def _write(self, step: int, state: State) -> None:
        name = f"step{step:09d}"
        unnamed = self.folder / ".unnamed.pt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Checked in advance, so that a checkpoint does not fill the disk that records are written to.
            if shutil.disk_usage(self.folder).free < sum(tensor.nbytes for tensor in tensors(state)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            atomic.write_file(unnamed, lambda file: torch.save({"version": VERSION, **state}, file))
            same_step = list(self.folder.glob(f"{name}-*.pt"))
            path = unnamed.replace(self.folder / f"{name}-{_digest(unnamed)}.pt")
            _sync(self.folder)
        except Exception as error:  # training continues in any case
            cause = error.__context__ or error  # torch replaces an OSError by one of its own
            self._problem = getattr(cause, "strerror", None) or f"{type(cause).__name__}: {cause}"
            self._remark(f"WARNING: the checkpoint of step {step} could not be written: {self._problem}")
            return
        kept_files = [file for file in self._all() if file == path or file not in same_step][-KEPT:]
        for old in {*self._all()} - {*kept_files}:
            with contextlib.suppress(OSError):
                old.unlink()


def read_checkpoint(path: Path) -> State:
    """Load the state in a checkpoint to the host.

    Raises:
        Damaged: the file is unreadable, does not match its digest, or is of another version.
    """
    try:
        if not path.stem.endswith(f"-{_digest(path)}"):
            raise Damaged("its content does not match the digest in its name")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Damaged(f"cannot be read: {error.strerror}") from None
    except pickle.UnpicklingError as error:  # it holds more than tensors and plain values
        raise Damaged(f"torch does not load it: {str(error).partition('.')[0]}") from None
    if state["version"] != VERSION:
        raise Damaged(f"version {state['version']}, expected {VERSION}")
    return state


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def _sync(folder: Path) -> None:
    """Flush the folder, so that the renamed file is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
