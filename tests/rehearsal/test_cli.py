"""`hpc cluster`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from hpc_utils import rehearsal
from hpc_utils.cli import main
from hpc_utils.rehearsal import Cluster

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
    again = hpc("up", "--name", name)
    assert (again.exit_code, "is up already" in again.stderr) == (2, True)
    script = f'eval "$("{sys.executable}" -m hpc_utils.cli cluster env --name {name})" && srun echo it works'
    said = subprocess.run(["bash", "-c", script], env=OUTSIDE, capture_output=True, text=True, timeout=60)
    assert said.stdout == "it works\n", said.stderr
    assert hpc("down", "--name", name).stdout.startswith(f"{name}: ended node1, ")


def test_what_is_not_up_says_how_to_start_it(name: str) -> None:
    assert hpc("down", "--name", name).stdout == f"{name} is not up: there is nothing to end\n"
    gone = hpc("env", "--name", name)
    assert (gone.exit_code, gone.stdout) == (2, "")
    assert f"`hpc cluster up --name {name}` starts it" in gone.stderr


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
