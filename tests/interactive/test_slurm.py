"""Engines as a job on a real Slurm, on two nodes."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpc_utils.interactive.engines import Engines, EnginesError, start
from hpc_utils.launch.slurm_commands import SlurmError, ask
from hpc_utils.rehearsal import Cluster

from .conftest import HANG, Notebook


@pytest.fixture
def place(results: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results folder of somebody who sits in a job on this cluster, as JupyterLab on Open OnDemand does."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_MEM_PER_NODE", "SBATCH_NODELIST"):
        monkeypatch.setenv(name, "7")
    yield results
    if left := jobs():
        ask(["scancel", *left])


def jobs() -> list[str]:
    rows = [line.split() for line in ask(["squeue", "--me", "--noheader", "--format=%i %j"]).splitlines()]
    return [job for job, name in rows if name.startswith(".engines-")]


def wait_until_gone(place: Path) -> None:
    until = time.monotonic() + HANG
    while jobs() or list(place.glob(".engines-*")):
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.fixture
def crew(place: Path, notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    environment = place.parent / "its environment.sh"
    environment.write_text("export FROM_THE_CLUSTER_FILE=yes\n")
    monkeypatch.setenv("HPC_JOB_ENVIRONMENT", str(environment))
    with start(2, "slurm", ["--nodes=2"]) as crew:
        yield crew


def test_ranks_on_two_nodes_hear_each_other_and_a_failing_one_ends_the_cell(
    crew: Engines, notebook: Notebook, place: Path, cluster: Cluster
) -> None:
    assert cluster.flat or set(crew.table.host) == {"node1", "node2"}
    (folder,) = place.glob(".engines-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (folder / "security").glob("ipcontroller-*")} == {0o600}
    crew.join()
    notebook.px("import torch, torch.distributed as dist\nx = torch.ones(3)\ndist.all_reduce(x)")
    assert [x.tolist() for x in crew.view["x"]] == [[2.0] * 3] * 2
    notebook.px("import os; told = os.environ.get('FROM_THE_CLUSTER_FILE')")
    assert crew.view["told"] == ["yes", "yes"]
    notebook.px("if dist.get_rank() == 1: raise ValueError('no data')\ndist.all_reduce(x)", "--noblock")
    outcomes = crew.outcomes()
    assert outcomes.outcome[1] == "ValueError: no data"
    assert outcomes.outcome[0].startswith("RuntimeError")
    crew.join()
    notebook.px("dist.all_reduce(x)")
    crew.close()
    wait_until_gone(place)


def test_a_job_that_waits_too_long_is_cancelled(place: Path) -> None:
    with pytest.raises(EnginesError, match="request free nodes"):
        start(2, "slurm", ["--hold"], timeout=2)
    assert not jobs()
    assert not list(place.glob(".engines-*"))


def test_what_slurm_refuses_is_reported_in_its_words(place: Path) -> None:
    with pytest.raises(EnginesError, match=r"(?i)invalid partition"):
        start(2, "slurm", ["--partition=none-such"])
    assert not list(place.glob(".engines-*"))


def test_the_job_ends_with_the_kernel(place: Path, kernel: Callable) -> None:
    process = kernel("2, 'slurm', ['--nodes=2']")
    assert jobs()
    process.send_signal(signal.SIGKILL)
    wait_until_gone(place)


def test_without_slurm_there_is_a_clear_error(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    with pytest.raises(SlurmError, match="no sinfo here"):
        start(2, "slurm")
    assert not results.exists()
