"""Which words are paths of a machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.publish.release import places

# Slashes are put in here, so that this file holds no such path.
FOUND = [
    "~home~anna~x",
    "~Users~anna",
    "~root~.cache~pip",
    "~tmp~job.123~a",
    "~scratch~p1~anna",
    "~scratch_local~a",
    "~work~x",
    "~lustre~p~a",
]
NONE = [
    "https:~~example.org~home~anna",
    "a~home~b",
    ".~tmp~x",
    "~~tmp",
    "~tmp",
    "~usr~lib",
    "$HOME~work~x",
    "${X}~tmp~y",
    "~tmp~",
]


@pytest.mark.parametrize("text", [one.replace("~", "/") for one in FOUND])
@pytest.mark.parametrize("around", ["{}", "x={} y", '"{}"', "({})", "file://{}", "PATH=/usr/bin:{}:"])
def test_paths_of_people_and_jobs_are_found(text: str, around: str) -> None:
    assert [path for _, path, _ in places.find(around.format(text))] == [text]


@pytest.mark.parametrize("text", [one.replace("~", "/") for one in NONE])
def test_others_are_none(text: str) -> None:
    assert list(places.find(f"see {text} there")) == []


def test_folders_of_windows_are_found_in_json_too() -> None:
    assert [path for _, path, _ in places.find(r'"C:\\Users\\anna\\x"')] == [r"C:\\Users\\anna\\x"]


def test_this_machine_s_own_places_count_whole() -> None:
    text = "/data/al/x /data/alice/x /other/data/al /srv/x"
    assert list(places.find(text, ("/data/al", "/srv/"))) == [
        (0, "/data/al", True),
        (text.index("/srv"), "/srv/", True),
    ]


def test_the_clone_and_the_home_are_this_machine_s(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr("sys.prefix", sys.base_prefix)
    monkeypatch.setattr("socket.getfqdn", lambda: "login1.cluster.example.org")
    monkeypatch.setattr(paths, "root", lambda: tmp_path / "clone")
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HOME", str(tmp_path / "anna"))
    assert set(places.own()) == {
        *(str(tmp_path / name) for name in ("clone", "results", "anna")),
        "login1.cluster.example.org",
    }


def test_folders_that_everybody_has_are_nobody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", sys.base_prefix)
    monkeypatch.setattr("socket.getfqdn", lambda: "localhost.localdomain")
    monkeypatch.setattr(paths, "root", lambda: Path("/data"))
    monkeypatch.setenv("HPC_RESULTS", "/results")
    monkeypatch.setenv("HOME", "/anna")
    assert places.own() == ("/anna/",)
    monkeypatch.setenv("HOME", "/")
    assert places.own() == ()
