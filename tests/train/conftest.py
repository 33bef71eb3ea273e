"""Fixtures for training on one and several processes, and for workloads outside the package."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.support import LAUNCHED

# A workload outside the package: a linear model on a map-style data set, with everything a user may bring.
OUTSIDE = """
    import torch
    from torch import nn
    from torch.utils.data import Dataset
    from hpc_utils.train import Workload

    class Points(Dataset):
        def __init__(self, size, seed):
            numbers = torch.Generator().manual_seed(seed)
            self.x = torch.randn(size, 4, generator=numbers)
            self.y = (self.x.sum(1) > 0).long()

        def __len__(self):
            return len(self.x)

        def __getitem__(self, index):
            return {"x": self.x[index], "index": index}, self.y[index]

    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 2))

        def forward(self, x, *, scale):
            return self.layers(x) * scale

    def make(width=8, test_size=7, scale=1.0):
        return Workload(
            model=lambda: Model(width),
            train=Points(96, 0),
            test=Points(test_size, 1),
            loss=nn.CrossEntropyLoss(),
            metrics={"right": lambda outputs, targets: (outputs.argmax(1) == targets).sum()},
            forward=lambda model, inputs: model(inputs["x"], scale=scale),
        )
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Path) -> Callable[[str, str], Path]:
    """`module("name", code)` in a working folder of its own, forgotten afterwards."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name: str, code: str) -> Path:
        path = folder / f"{name}.py"
        path.write_text(textwrap.dedent(code))
        sys.modules.pop(name, None)
        return path

    yield write
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).parent == folder:
            del sys.modules[name]


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """Training in this process leaves its cores, threads and number formats as they were."""
    before = _settings()
    yield
    assert _settings() == before


def _settings() -> tuple:
    return (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        torch.get_num_threads(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.are_deterministic_algorithms_enabled(),
        torch.distributed.is_initialized(),
    )


@pytest.fixture(scope="module")
def own_results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty result set for all of a file's tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in LAUNCHED:
            patch.delenv(name, raising=False)
        folder = tmp_path_factory.mktemp("results")
        patch.setenv("HPC_RESULTS", str(folder))
        yield folder
