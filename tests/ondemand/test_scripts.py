"""The job's scripts where the environment differs or something is missing; JupyterLab is a stand-in here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

STAND_IN = """#!/bin/bash
echo "$1 in $PWD, umask $(umask), from $(basename "$(dirname "$0")"), export ${SLURM_EXPORT_ENV:-all}, code ${PYTHONPATH:-there}"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose .venv has a stand-in for JupyterLab, and a home whose profile meddles."""
    clone = tmp_path / "my clone"
    for name in ("venv", "modules"):
        lab = clone / name / "jupyter-lab"
        lab.parent.mkdir(parents=True)
        lab.write_text(STAND_IN)
        lab.chmod(0o755)
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/activate").write_text('PATH="$PWD/venv:$PATH"\n')
    (tmp_path / ".profile").write_text("umask 022\ncd /\n")
    return clone


def run(script: Path, clone: Path) -> subprocess.CompletedProcess[str]:
    """`script` of a session, as Slurm would run it."""
    environment = {"HOME": str(clone.parent), "PATH": "/usr/bin:/bin", "SLURM_EXPORT_ENV": "NONE"}
    environment |= {"working_dir": str(clone), "host": "node1", "port": "2000"}
    return subprocess.run(
        [script],
        env=environment,
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def test_the_clone_s_own_environment(launch, clone: Path) -> None:
    folder, _ = launch(clone)
    done = run(folder / "script.sh", clone)
    expected = f"--config={folder}/jupyter_config.py in {clone}, umask 0077, from venv, export all, code there\n"
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


def test_the_cluster_s_environment_comes_first(launch, clone: Path) -> None:
    (clone / "jobs").mkdir()
    (clone / "jobs/environment.sh").write_text('PATH="$PWD/modules:$PATH"\n')
    (clone / "hpc_utils").mkdir()
    done = run(launch(clone)[0] / "script.sh", clone)
    assert f"from modules, export all, code {clone}\n" in done.stdout, done.stderr


def test_jupyterlab_of_a_container(launch, clone: Path) -> None:
    (clone / "jobs").mkdir()
    (clone / "jobs/environment.sh").write_text("in_container=(echo 'the image')\n")
    folder, _ = launch(clone)
    assert run(folder / "script.sh", clone).stdout == f"the image jupyter-lab --config={folder}/jupyter_config.py\n"


def test_a_clone_without_an_environment_ends_the_job_at_once(launch, clone: Path) -> None:
    (clone / ".venv/bin/activate").unlink()
    folder, _ = launch(clone)
    (folder / "job_script_content.sh").chmod(0o755)
    done = run(folder / "job_script_content.sh", clone)
    assert done.returncode == 1
    assert f"no JupyterLab in {clone}" in done.stderr and "env/README.md" in done.stderr
    assert "JupyterLab ended before it answered" in done.stderr
    assert not (folder / "connection.yml").exists()


def test_a_server_that_never_answers_is_given_up(launch) -> None:
    folder, _ = launch("/")
    stand_ins = "port_used() { return 1; }; sleep() { SECONDS=$((SECONDS + 60)); }; clean_up() { exit $(($1 + 4)); }"
    script = f"{stand_ins}; host=node1 port=2000 SCRIPT_PID=$$; source {folder}/after.sh"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 5
    assert "did not answer on node1:2000 within 300 s" in done.stderr


def test_what_the_dashboard_left_is_closed_before_the_password_is_made(launch, tmp_path: Path) -> None:
    folder, _ = launch(tmp_path)
    folder.chmod(0o755)
    script = (
        f"find_port() {{ echo 2000; }}; create_passwd() {{ echo $1; }}; source {folder}/before.sh; echo $password"
    )
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, umask=0o022)
    assert done.stdout == "32\n", done.stderr
    assert [path.name for path in (folder, *folder.iterdir()) if path.stat().st_mode & 0o077] == []
    algorithm, salt, digest = (folder / "password_hash").read_text().split(":")
    assert (algorithm, salt, len(digest)) == ("sha256", "16", 64)
    assert os.stat(folder).st_mode & 0o700 == 0o700
