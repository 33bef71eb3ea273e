"""Nothing of a set outlives it: whoever ends, however."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_utils.interactive.engines import EnginesError, start
from tests.support import soak

from .conftest import HANG, members, wait_until_gone

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set's folder is made here, where nobody else makes any."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def folder_of_set(tmp_path: Path) -> Path:
    (folder,) = tmp_path.glob("hpc-engines-*")
    return folder


def test_the_end_of_a_with_block_ends_all_and_removes_its_files_also_on_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), start(2) as crew:
        folder = folder_of_set(tmp_path)
        assert len(members(folder)) >= 3, "a controller and two engines"
        raise ZeroDivisionError
    wait_until_gone(folder)
    crew.close()


@linux
@pytest.mark.parametrize("how", [signal.SIGKILL, soak(signal.SIGTERM)])
def test_they_end_with_the_kernel(kernel: Callable, tmp_path: Path, how: signal.Signals) -> None:
    process = kernel("2")
    folder = folder_of_set(tmp_path)
    assert members(folder)
    process.send_signal(how)
    wait_until_gone(folder)


@pytest.fixture
def engine_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`engine_does(code)`: what each engine executes before anything else."""

    def write(code: str) -> None:
        (tmp_path / "site").mkdir()
        text = f"import os, sys, time\nif 'ipyparallel.engine' in sys.orig_argv:\n    {code}\n"
        (tmp_path / "site" / "sitecustomize.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")

    return write


def test_an_engine_that_cannot_start_is_reported_at_once(tmp_path: Path, engine_does: Callable) -> None:
    first = f"os.mkdir({str(tmp_path / 'first')!r}); time.sleep(1); print('no such luck', flush=True); os._exit(3)"
    engine_does(f"if not os.path.exists({str(tmp_path / 'first')!r}): {first}")
    begun = time.monotonic()
    with pytest.raises(EnginesError, match=r"(?s)the engines did not connect.*no such luck"):
        start(2, timeout=HANG)
    assert time.monotonic() - begun < HANG / 2
    assert not list(tmp_path.glob("hpc-engines-*"))


@linux
def test_a_kernel_that_is_killed_during_the_start_leaves_nothing(
    tmp_path: Path, engine_does: Callable, kernel: Callable
) -> None:
    engine_does(f"open({str(tmp_path / 'begun')!r}, 'w').close(); time.sleep(600)")
    process = kernel("2", until="begun")
    folder = folder_of_set(tmp_path)
    assert len(members(folder)) >= 2, "a controller and an engine"
    process.kill()
    wait_until_gone(folder)


def test_engines_that_do_not_come_in_time_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(EnginesError, match="wait longer"):
        start(2, timeout=0)
    assert not list(tmp_path.glob("hpc-engines-*"))


@pytest.mark.parametrize(("number", "where"), [(1, "local"), (2, "slrum")])
def test_a_set_that_cannot_be_is_refused_before_anything_starts(tmp_path: Path, number: int, where: str) -> None:
    with pytest.raises(EnginesError, match=f"engines={number}, where='{where}'"):
        start(number, where)
    assert not list(tmp_path.iterdir())
