"""Access to a set of engines, and what it takes over from where it was started."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ipyparallel import Client

from hpc_utils.interactive.engines import Engines, start
from hpc_utils.workspace import Launch

from .conftest import members


def connection_file(folder: Path, side: str) -> Path:
    """The file with the controller's address for a `client` or an `engine`, and the key that signs messages."""
    (path,) = (folder / "security").glob(f"ipcontroller-*-{side}.json")
    return path


@pytest.fixture(scope="module")
def crew_and_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engines, Path]]:
    """A set that was started in a run, by a user with a start-up file."""
    place = tmp_path_factory.mktemp("private")
    startup = place / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("started_up = True\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(place))
        patch.setenv("IPYTHONDIR", str(place / "ipython"))
        patch.setenv("HPC_LAUNCH", Launch(run="/a/run").variables["HPC_LAUNCH"])
        with start(2) as crew:
            (folder,) = place.glob("hpc-engines-*")
            yield crew, folder


def test_nobody_else_reaches_them(crew_and_folder: tuple[Engines, Path]) -> None:
    _, folder = crew_and_folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for side in ("client", "engine"):
        assert stat.S_IMODE(connection_file(folder, side).stat().st_mode) == 0o600
    known = json.loads(connection_file(folder, "client").read_text())
    assert known["signature_scheme"] == "hmac-sha256"
    with pytest.raises(TimeoutError):
        Client(known | {"key": "guessed"}, timeout=1)
    connections = [one for process in members(folder) for one in process.net_connections(kind="inet")]
    assert {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}


def test_they_take_over_no_run_or_start_up_file(crew_and_folder: tuple[Engines, Path]) -> None:
    crew, _ = crew_and_folder
    for record in crew.view.apply(os.getenv, "HPC_LAUNCH"):
        assert not Launch.of({"HPC_LAUNCH": record}).run
    crew.view.execute("known = 'started_up' in globals()", block=True)
    assert crew.view["known"] == [False, False]
