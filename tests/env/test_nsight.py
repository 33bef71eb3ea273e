"""Nsight Systems from Debian, as `env/nsight.sh` unpacks it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "env/nsight.sh"


def unpack(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(SCRIPT), *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_what_is_unpacked_is_not_unpacked_again(tmp_path: Path) -> None:
    (tmp_path / "complete").touch()
    done = unpack(tmp_path, PATH="/nowhere:/bin:/usr/bin")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/usr/bin\n")


def test_a_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    theirs = tmp_path / "tools/.kept"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    for tool in ("apt-get", "dpkg-deb"):  # no network: whatever it would unpack, it is not what matters here
        (tmp_path / tool).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / tool).chmod(0o755)
    done = unpack("tools", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{theirs.parent} holds other files" in done.stderr
    assert theirs.read_text() == "theirs"


def test_without_apt_it_states_what_else_would_do(tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "id", "mktemp", "mkdir"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    done = unpack(tmp_path / "prefix", PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no apt-get here: put the nsys of a CUDA toolkit on PATH" in done.stderr
    assert not (tmp_path / "prefix").exists()


def test_the_nsys_of_the_tests_runs(nsys: str) -> None:
    done = subprocess.run([nsys, "--version"], capture_output=True, text=True, timeout=60)
    assert "NVIDIA Nsight Systems version" in done.stdout
