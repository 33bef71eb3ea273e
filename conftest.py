"""What all rooms' tests share."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from hpc_utils import paths, rehearsal
from hpc_utils.launch import forkserver
from hpc_utils.rehearsal import host
from tests import parallel
from tests.notebooks.chapters import executed  # noqa: F401
from tests.support import LAUNCHED

# Tests share the machine: their runs wait for no other, and are in no figure. Where figures are drawn of them, it is unset.
os.environ["HPC_SHARED"] = "1"

# As `hpc` does: imports make most objects, and frequent collection would take a fifth of their time.
gc.set_threshold(100_000)
sys.modules.setdefault("rfc3987_syntax", None)  # see launch.rank; each process that runs tests would import it

# A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start with them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No example database: tests leave nothing beside themselves. In CI every run tries the same examples.
settings.register_profile("compendium", deadline=None, database=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("compendium")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty result set, for a process that nobody launched."""
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "results"
    monkeypatch.setenv("HPC_RESULTS", str(folder))
    return folder


# Ranks of tests/train and commands of tests/launch are forks of one forkserver.
forkserver.MODULES.append("tests.train.forked")


@pytest.fixture(scope="session")
def server() -> int:
    """The process id of the forkserver that commands are forked from, where a test is not about how they start."""
    with contextlib.chdir(paths.root()):  # where it finds the tests
        return forkserver.start()


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skip where no Slurm can be started; in CI that is a failure."""
    try:
        host.require(flat=True)
    except rehearsal.ClusterError as error:
        if os.environ.get("CI") and sys.platform == "linux":
            raise
        pytest.skip(f"no rehearsal cluster here: {error}")


@pytest.fixture(scope="session")
def cluster(slurm_installed: None) -> Iterator[rehearsal.Cluster]:
    """A real Slurm on two nodes, started when the first test asks for it and shared by all of this process's.

    A test that shapes links or cuts a node's power puts it back as it was.
    """
    running = rehearsal.up(f"test-{os.getpid()}", nodes=2, lasting=False)
    yield running
    running.down()


@pytest.fixture(scope="session")
def nsys() -> str:
    """This machine's Nsight Systems; skip where there is none. In CI that is a failure."""
    found = shutil.which("nsys")
    if found is None and os.environ.get("CI") and sys.platform == "linux":
        pytest.fail("CI unpacks Nsight Systems: env/nsight.sh")
    if found is None:
        pytest.skip("no nsys here: PATH=$(env/nsight.sh):$PATH unpacks Debian's")
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Who runs what, where several processes do."""
    return parallel.scheduler(config, log)


def pytest_collection_finish() -> None:
    """What was imported stays: no collection of garbage looks at it again."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; skip what needs a GPU where there is none."""
    items.sort(key=lambda item: parallel.place(item.nodeid))
    for item in items:
        # `make soak` has one process.
        alone = item.get_closest_marker("soak") or item.nodeid.startswith(parallel.CLUSTER)
        if {"cluster", "nsys"} & {*getattr(item, "fixturenames", ())} and not alone:
            raise pytest.UsageError(f"{item.nodeid} shares a cluster or nsys: name its file in tests/parallel.py")
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU here"))
