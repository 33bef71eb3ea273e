"""`hpc cluster`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpc_utils import rehearsal
from hpc_utils.cli import main
from hpc_utils.rehearsal import Cluster, processes
from hpc_utils.rehearsal import folder as folders
from tests.support import wait_for

from ..slurm.conftest import Desk, submissions
from .support import OUTSIDE


@pytest.fixture
def name(slurm_installed: None) -> Iterator[str]:
    """A cluster of this test's own, which ends whatever happens."""
    before = signal.getsignal(signal.SIGTERM)
    yield f"cli-{os.getpid()}"
    rehearsal.down(f"cli-{os.getpid()}")
    signal.signal(signal.SIGTERM, before)


def hpc(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["cluster", *arguments])


def test_up_env_and_down(name: str) -> None:
    up = hpc("up", "--name", name, "--nodes", "1", "--gpus", "0")
    assert up.exit_code == 0, up.output
    assert " s  controller\n" in up.stdout
    assert f'eval "$(hpc cluster env --name {name})"' in up.stdout
    assert hpc("up", "--name", name, "--nodes", "1", "--gpus", "0").exit_code == 0, "it is up"
    again = hpc("up", "--name", name)
    assert (again.exit_code, "is up already" in again.stderr) == (2, True)
    script = f'eval "$("{sys.executable}" -m hpc_utils.cli cluster env --name {name})" && srun echo it works'
    said = subprocess.run(["bash", "-c", script], env=OUTSIDE, capture_output=True, text=True, timeout=60)
    assert said.stdout == "it works\n", said.stderr
    assert hpc("down", "--name", name).stdout.startswith(f"{name}: ended node1, ")


def test_a_node_without_power_shows_in_the_status(cluster: Cluster) -> None:
    here = ("--name", cluster.name)
    assert hpc("kill-node", "node2", *here).exit_code == 0
    try:
        lines = hpc("status", *here).stdout.splitlines()
        assert (lines[0].split()[0], lines[0].split()[-1]) == ("node1", cluster.address("node1"))
        assert lines[1].split() == ["node2", "no", "power", cluster.address("node2")]
        assert "slurmctld" in lines[2]
    finally:
        assert hpc("revive-node", "node2", *here).stdout == "node2 is ready\n"


def test_links_are_shaped_and_freed(cluster: Cluster) -> None:
    here = ("--name", cluster.name)
    if cluster.flat:
        assert "flat" in hpc("shape", "--rate", "1gbit", *here).stderr
        return
    assert hpc("shape", "--rate", "2.5gbit", *here).stdout == "every node's link: 2.5gbit each way\n"
    assert "links 2.5gbit" in hpc("status", *here).stdout
    assert hpc("shape", "--rate", "none", *here).exit_code == 0
    assert cluster.status().rate is None
    refused = hpc("shape", "--rate", "fast", *here)
    assert (refused.exit_code, "100mbit" in refused.stderr) == (2, True)


@pytest.fixture
def desk(slurm_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """Somebody whose default cluster, which `--cluster rehearsal` means, is this test's own."""
    with tempfile.TemporaryDirectory(prefix="hpc-") as clusters:  # short: sockets lie in it
        monkeypatch.setenv("HPC_REHEARSAL", clusters)
        cluster = rehearsal.up(nodes=1)
        desk = Desk(tmp_path / "desk", cluster)
        yield desk
        rehearsal.down()


@pytest.mark.soak
def test_a_killed_cluster_leaves_status_logs_and_cancel_to_tell_what_is_recorded(desk: Desk) -> None:
    desk.hpc("submit", desk.study(ranks="[1]"), "--cluster", "rehearsal")
    job = submissions(desk)[0]["jobs"][0]["id"]
    desk.wait(lambda: list(desk.results.glob(f"submissions/*/logs/{job}_0.log")))
    keeper = folders.living_owner(desk.cluster.folder)
    for one in [keeper, *processes.descendants(keeper.pid)]:
        processes.kill(one)
    wait_for(lambda: not processes.alive(keeper))

    unaware = {"SLURM_CONF": ""}  # whoever has not said `hpc cluster env`
    status = desk.hpc("status", "--all", **unaware)
    assert "killed" in status.stderr
    assert "LOST" in status.stdout and "`hpc retry`" in status.stdout
    assert f"{job}_0.log" in desk.hpc("logs", job, **unaware).stdout
    assert desk.hpc("cancel", "small", **unaware).stdout == "0 cancelled\n"
    assert "submitted again" in desk.hpc("retry", **unaware).stdout


@pytest.mark.soak  # the test above asks a cluster that is gone
def test_a_cluster_that_is_down_leaves_completed_jobs_and_is_not_started_by_a_dry_run(desk: Desk) -> None:
    submit = ["submit", desk.study(ranks="[1]"), "--cluster", "rehearsal"]
    desk.hpc(*submit, "--wait")
    rehearsal.down()
    unaware = {"SLURM_CONF": ""}
    assert desk.hpc("status", **unaware).stdout == "2 COMPLETED\n", "the run and the report"
    dry = desk.hpc(*submit, "--dry-run", "--redo", check=False, **unaware)
    assert (dry.returncode, dry.stderr.count("\n"), dry.stdout) == (2, 1, "")
    assert "`hpc cluster up`" in dry.stderr
    assert rehearsal.find_cluster() is None


@pytest.mark.soak  # a test above asks for a cluster that was killed
def test_another_cluster_that_was_killed_disturbs_no_other(desk: Desk, cluster: Cluster) -> None:
    """Whose Slurm's commands are told of a cluster has that one."""
    elsewhere = Desk(desk.folder, cluster)
    elsewhere.hpc("submit", elsewhere.study(ranks="[1]"), "--cluster", "rehearsal")
    folders.living_owner(desk.cluster.folder).kill()
    wait_for(lambda: not folders.living_owner(desk.cluster.folder))
    assert elsewhere.hpc("status").stderr == ""
    assert "2 cancelled" in elsewhere.hpc("cancel", "small").stdout
