from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hpc_utils.records import atomic


def test_an_error_midway_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "epochs.csv"
    atomic.write_text(path, "old\n")

    def fill(file) -> None:
        file.write(b"new, but only ha")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        atomic.write_file(path, fill)
    assert path.read_text() == "old\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_names_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    def fill(file) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError) as caught:
        atomic.write_file(tmp_path / "run.json", fill)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "run.json"))


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    atomic.write_text(path, "old")

    def fill(file) -> None:
        file.write(b"new")
        file.flush()
        assert path.read_text() == "old"

    atomic.write_file(path, fill)
    assert path.read_text() == "new"


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        atomic.write_json(tmp_path / "run.json", {"throughput": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_others_may_read_what_the_umask_lets_them(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        atomic.write_text(tmp_path / "x", "text")
    finally:
        restored = os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == mode
    assert restored == umask
