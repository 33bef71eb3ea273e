"""Locks: of two processes one waits; a file system without locks stops nothing."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from hpc_utils import file_lock
from hpc_utils.launch import core_lock


@pytest.fixture(params=[errno.ENOLCK, errno.ENOSYS])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks."""

    def refuse(*_: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    for name in ("flock", "lockf"):
        monkeypatch.setattr(fcntl, name, refuse)


def test_a_held_lock_is_waited_for(tmp_path: Path) -> None:
    waited = []
    hold = file_lock.hold(tmp_path / "a.lock", seconds=0.3, wait=lambda: waited.append(1))
    with FileLock(tmp_path / "a.lock"), pytest.raises(Timeout), hold:
        pass
    assert waited == [1]
    with file_lock.hold(tmp_path / "a.lock") as is_locked:
        assert is_locked


def test_work_goes_on_without_locks(no_locks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPC_SHARED", raising=False)
    done = []
    with file_lock.hold(tmp_path / "a.lock"), core_lock.lock_cores("a run"):
        done.append(1)
    assert done == [1]


def test_an_error_in_the_block_is_not_a_missing_lock(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), file_lock.hold(tmp_path / "a.lock"):
        raise OSError(errno.ENOSYS, "full")
