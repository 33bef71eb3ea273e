"""Who else can reach a set, and what it takes over from where it was started."""

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
from hpc_utils.interactive.member import connection_file
from hpc_utils.workspace import Launch

from .conftest import members

FOREIGN = ("SLURM_JOB_ID", "SLURM_PROCID", "RANK", "MASTER_ADDR")


@pytest.fixture(scope="module")
def crew_and_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engines, Path]]:
    """A set that was started inside a Slurm job, under torchrun, by a user with a start-up file."""
    place = tmp_path_factory.mktemp("private")
    startup = place / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("started_up = True\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(place))
        patch.setenv("IPYTHONDIR", str(place / "ipython"))
        for name in FOREIGN:
            patch.setenv(name, "7")
        patch.setenv("HPC_LAUNCH", Launch(run="/a/run").variables["HPC_LAUNCH"])
        with start(2) as crew:
            (folder,) = place.glob("hpc-engines-*")
            yield crew, folder


def test_only_their_owner_can_read_the_key(crew_and_folder: tuple[Engines, Path]) -> None:
    _, folder = crew_and_folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for side in ("client", "engine"):
        assert stat.S_IMODE(connection_file(folder, side).stat().st_mode) == 0o600


def test_who_has_not_the_key_is_not_answered(crew_and_folder: tuple[Engines, Path]) -> None:
    _, folder = crew_and_folder
    known = json.loads(connection_file(folder, "client").read_text())
    assert known["signature_scheme"] == "hmac-sha256"
    with pytest.raises(TimeoutError):
        Client(known | {"key": "guessed"}, timeout=1)


def test_they_listen_on_loopback_only(crew_and_folder: tuple[Engines, Path]) -> None:
    listening = {
        connection.laddr.ip
        for process in members(crew_and_folder[1])
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_they_know_of_no_job_and_no_launcher(crew_and_folder: tuple[Engines, Path]) -> None:
    crew, _ = crew_and_folder
    assert crew.client.ids == [0, 1]
    for name in FOREIGN:
        assert crew.view.apply(os.getenv, name) == [None, None], name
    for record in crew.view.apply(os.getenv, "HPC_LAUNCH"):
        assert not Launch.of({"HPC_LAUNCH": record}).run


def test_the_users_start_up_files_are_not_run(crew_and_folder: tuple[Engines, Path]) -> None:
    crew, _ = crew_and_folder
    crew.view.execute("known = 'started_up' in globals()", block=True)
    assert crew.view["known"] == [False, False]
