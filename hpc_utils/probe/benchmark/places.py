"""The places that a job can read a data set from, and a copy of it there that is gone in the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import datasets, paths
from hpc_utils.config import ConfigError
from hpc_utils.probe import filesystem


@dataclass(frozen=True)
class Place:
    """A folder that jobs can have their data in. `name`: shared, node-local or memory."""

    name: str
    folder: Path

    @property
    def filesystem(self) -> str | None:
        """As `filesystem.kind`."""
        return filesystem.kind(self.folder)

    def refusal(self, size: int) -> str:
        """Why a copy of `size` bytes cannot be here; "" if it can."""
        if not self.folder.is_dir():
            return f"no folder {self.folder.name}"
        if not os.access(self.folder, os.W_OK | os.X_OK):
            return "not writable"
        free = shutil.disk_usage(self.folder).free
        return "" if free > 2 * size else f"{free / 1e6:.0f} MB free, twice {size / 1e6:.0f} MB wanted"


def known() -> list[Place]:
    """The data folder; a disk of the node, as the cluster file or TMPDIR names it; the node's memory."""
    local = os.environ.get("HPC_NODE_LOCAL") or tempfile.gettempdir()
    return [Place("shared", paths.data()), Place("node-local", Path(local)), Place("memory", Path("/dev/shm"))]


def stored(dataset: str) -> datasets.Images:
    """The train images of a data set that lies in a storage.

    Raises:
        DataError: it is not here. ConfigError: it is embedded, and so in memory anyway.
    """
    if dataset == "digits":
        raise ConfigError("digits is embedded and lies in memory: it needs no storage; --dataset takes another")
    return datasets.load(dataset, "train")


@contextmanager
def copied(dataset: str, home: Path) -> Iterator[None]:
    """Make `home`/<data set>, a copy of what the data folder holds; `home` is removed however this ends."""
    try:
        home.mkdir(mode=0o700)
        shutil.copytree(paths.data() / dataset, home / dataset)
        yield
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def data_in(home: Path) -> Iterator[None]:
    """Whatever opens a data set meanwhile finds it there."""
    before = os.environ.get("HPC_DATA")
    os.environ["HPC_DATA"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["HPC_DATA"]
        else:
            os.environ["HPC_DATA"] = before
