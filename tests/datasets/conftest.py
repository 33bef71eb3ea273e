from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.datasets import fetch
from hpc_utils.datasets.fetch import in_mirror
from tests.datasets import layouts

# Read at import: the fixture below takes it out of each test's environment.
_MIRROR = os.environ.get("HPC_DATA_MIRROR")


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch) -> Path:
    """An empty data folder, and no mirror or proxy but the test's own."""
    folder = tmp_path / "data"
    monkeypatch.setenv("HPC_DATA", str(folder))
    monkeypatch.delenv("HPC_DATA_MIRROR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


@pytest.fixture
def small_mnist(tmp_path, monkeypatch) -> Path:
    """A mirror of an MNIST of 30 + 12 images that the catalogue takes for the whole."""
    layouts.know(monkeypatch, "mnist", *layouts.MNIST)
    return layouts.mnist(tmp_path / "mirror", *layouts.MNIST)


@pytest.fixture
def small_cifar(monkeypatch) -> None:
    """The catalogue takes `layouts.CIFAR` for the whole CIFAR-10."""
    layouts.know(monkeypatch, "cifar10", *layouts.CIFAR)
    layouts.know_batches(monkeypatch, *layouts.CIFAR)


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The real data sets, where this machine has them."""
    folder = Path(_MIRROR).absolute() if _MIRROR else paths.root().parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no mirror of the real data sets at {folder} (set HPC_DATA_MIRROR)")
    for name in ("cifar10", "mnist", "tiny-imagenet"):
        if not in_mirror(name, folder):
            pytest.skip(f"the mirror {folder} does not hold {name}")
    return folder


@pytest.fixture(scope="session")
def fetched(mirror, tmp_path_factory) -> Path:
    """A data folder with every real data set, fetched once from the mirror."""
    folder = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPC_DATA", str(folder))
        for name in ("cifar10", "mnist", "tiny-imagenet"):
            fetch(name, mirror=mirror)
    return folder


@pytest.fixture
def real(fetched, monkeypatch) -> None:
    """The data folder has every real data set: read it, do not write to it."""
    monkeypatch.setenv("HPC_DATA", str(fetched))
