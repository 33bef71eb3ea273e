"""Clusters begin, stand side by side and end, and nothing of them is left, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hpc_utils import rehearsal
from hpc_utils.rehearsal import ClusterError, host, processes
from hpc_utils.rehearsal import folder as folders
from tests.support import soak, wait_for

from .support import left_of, path_without, slurm

pytestmark = pytest.mark.usefixtures("slurm_installed")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name of this test's own, under which nothing is left whatever happens."""
    chosen = f"life-{os.getpid()}"
    yield chosen
    rehearsal.down(chosen)


def kinds(flat: bool) -> bool:
    if not flat and not host.has_namespaces():
        pytest.skip("namespaces need root")
    return flat


@pytest.mark.parametrize("flat", [False, soak(True)])  # test_flat.py ends a flat one
def test_down_leaves_nothing_of_cluster_or_jobs(name: str, flat: bool, tmp_path: Path) -> None:
    """Not even of a process that left its job, its session and its environment behind."""
    cluster = rehearsal.up(name, nodes=2, flat=kinds(flat))
    assert {*cluster.status().nodes.values()} == {"idle"}
    marker = f"98{os.getpid()}"
    script = f"env -i setsid sleep {marker} & sleep {marker} & touch running; wait"
    slurm(cluster, "sbatch", "--output=/dev/null", "--wrap", script, cwd=tmp_path)
    wait_for((tmp_path / "running").exists)
    wait_for(lambda: sum(marker in line for line in left_of(cluster.folder, marker)) >= 2)
    assert {"node1", "slurmctld", "slurmdbd", "mariadbd", "munged"} <= {*cluster.down()}
    assert left_of(cluster.folder, marker) == []
    assert rehearsal.find_cluster(name) is None
    assert rehearsal.down(name) == []


def test_two_clusters_that_start_at_once_do_not_meet(name: str) -> None:
    names = [f"{name}-a", f"{name}-b"]
    try:
        with ThreadPoolExecutor() as pool:
            clusters = list(pool.map(lambda name: rehearsal.up(name, nodes=1), names))
        for cluster in clusters:
            job = ("sbatch", "--parsable", "--output=/dev/null", "--job-name", cluster.name, "--wrap", "true")
            assert slurm(cluster, *job) == "1"
        rehearsal.down(names[0])
        assert slurm(clusters[1], "squeue", "--states=all", "--noheader", "--format=%j") == names[1]
    finally:
        for cluster_name in names:
            rehearsal.down(cluster_name)
    assert [left_of(cluster.folder) for cluster in clusters] == [[], []]


UP = "import sys; from hpc_utils import rehearsal; rehearsal.up(sys.argv[1], progress=lambda s, t: print(s, flush=True))"


@pytest.mark.parametrize(("how", "when"), [("SIGTERM", "munge"), soak("SIGKILL", "accounting")])
def test_an_interrupted_start_leaves_nothing(name: str, how: str, when: str) -> None:
    folder = folders.of(name)
    with subprocess.Popen([sys.executable, "-c", UP, name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as up:
        while up.stdout.readline().strip() != when.encode():
            assert up.poll() is None
        up.send_signal(signal.Signals[how])
    assert up.returncode != 0
    wait_for(lambda: not left_of(folder))


@pytest.mark.soak  # the next test kills a keeper
def test_a_cluster_can_be_tied_to_who_started_it(name: str) -> None:
    code = "import sys, os; from hpc_utils import rehearsal; rehearsal.up(sys.argv[1], lasting=False); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, name], timeout=120).returncode == -signal.SIGKILL
    wait_for(lambda: not left_of(folders.of(name)))


def test_a_half_dead_cluster_is_distinguished_and_cleared(name: str) -> None:
    cluster = rehearsal.up(name, nodes=1)
    owner = folders.living_owner(cluster.folder)
    next(process for process in processes.descendants(owner.pid) if process.name() == "slurmdbd").kill()
    with pytest.raises(ClusterError, match=f"has lost slurmdbd.*hpc cluster down --name {name}"):
        wait_for(lambda: rehearsal.find_cluster(name) is None)
    processes.kill(owner)
    wait_for(lambda: left_of(cluster.folder) == [str(cluster.folder)])
    with pytest.raises(ClusterError, match=f"was killed; `hpc cluster down --name {name}` clears"):
        rehearsal.find_cluster(name)
    assert rehearsal.down(name) == [str(cluster.folder)]
    assert left_of(cluster.folder) == []


@pytest.mark.parametrize(("flat", "stepd"), [(False, "spared"), soak(True, "killed")])
def test_a_cluster_starts_where_one_was_killed_process_by_process(
    name: str, flat: bool, stepd: str, tmp_path: Path
) -> None:
    """As a test run's is with its machine: the same process id, and so the same name, comes again."""
    cluster = rehearsal.up(name, nodes=1, flat=kinds(flat))
    marker = f"97{os.getpid()}"
    script = f"env -i setsid sleep {marker} & touch running; sleep {marker}"
    slurm(cluster, "sbatch", "--output=/dev/null", "--wrap", script, cwd=tmp_path)
    wait_for((tmp_path / "running").exists)
    keeper = folders.living_owner(cluster.folder)
    doomed = [keeper, *(one for one in processes.descendants(keeper.pid) if not of_a_job(one, stepd))]
    for one in doomed:
        processes.kill(one)
    wait_for(lambda: not processes.alive(keeper))
    again = rehearsal.up(name, nodes=1, flat=flat)
    assert not [line for line in left_of(cluster.folder, marker) if marker in line], "the dead one's job runs on"
    assert slurm(again, "srun", "echo", "it works") == "it works"
    rehearsal.down(name)
    assert left_of(cluster.folder, marker) == []


def of_a_job(process: psutil.Process, stepd: str) -> bool:
    """What outlives its node's slurmd where that is killed alone, or with its slurmstepd."""
    with suppress(psutil.Error):
        words = ("slurm_script", "sleep", *["slurmstepd"] * (stepd == "spared"))
        return any(word in part for part in process.cmdline() for word in words)
    return False


def test_a_daemon_that_cannot_start_gives_the_reason(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of its output is in the message, and its logs stay; nothing else does."""
    place = path_without("slurmdbd", tmp_path / "bin")
    monkeypatch.setattr(rehearsal.host, "ADMIN_FOLDERS", ())
    monkeypatch.setenv("PATH", place)
    with pytest.raises(ClusterError, match=r"missing: slurmdbd\n.*apt-get install .*slurmdbd"):
        rehearsal.up(name)
    broken = Path(place) / "slurmdbd"
    broken.write_text("#!/bin/sh\necho the database is on fire >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ClusterError, match=r"(?s)slurmdbd ended; the end of .*slurmdbd\.out:.*on fire"):
        rehearsal.up(name)
    folder = folders.of(name)
    assert "on fire" in (folder / "log" / "slurmdbd.out").read_text()
    assert rehearsal.find_cluster(name) is None
    assert rehearsal.down(name) == [str(folder)]
    assert left_of(folder) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"nodes": 0}, "nodes=0"), ({"gpus": 99}, "gpus=99"), ({"name": "../a"}, "a-z")],
)
def test_refuses_what_cannot_be(name: str, wrong: dict, says: str) -> None:
    with pytest.raises(ClusterError, match=says) as refused:
        rehearsal.up(**{"name": name} | wrong)
    assert refused.value.exit_code == 2


def test_the_folder_can_lie_elsewhere_but_not_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Path("/tmp/clusters")
    monkeypatch.setenv("HPC_REHEARSAL", str(elsewhere))
    assert folders.of("a") == elsewhere / "a"
    for wrong in (elsewhere / ("x" * 100), "/tmp/my clusters", "/dev/shm/clusters"):
        monkeypatch.setenv("HPC_REHEARSAL", str(wrong))
        with pytest.raises(ClusterError, match="HPC_REHEARSAL"):
            folders.of("a")


def test_a_folder_that_no_cluster_made_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LONGEST", 500)  # no socket is made
    monkeypatch.setenv("HPC_REHEARSAL", str(tmp_path))
    thesis = tmp_path / "mydata" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("mine")
    for act in (rehearsal.down, rehearsal.up):
        with pytest.raises(ClusterError, match="thesis"):
            act("mydata")
    assert thesis.read_text() == "mine"
