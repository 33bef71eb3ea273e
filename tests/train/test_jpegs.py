"""JPEG files in memory, decoded by the workers of a DataLoader."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpc_utils import datasets
from hpc_utils.train import jpegs

from .support import BRIEF, fit

RAMP = np.linspace(0, 255, 32, dtype=np.uint8)
PIXELS = np.broadcast_to(RAMP[:, None, None], (40, 32, 32, 3))  # smooth, so that encoding changes little
IMAGES = SimpleNamespace(images=PIXELS, labels=np.arange(40) % 4, classes=("a", "b", "c", "d"))


def test_each_sample_is_decoded_and_cropped_anew() -> None:
    data = jpegs.Jpegs(IMAGES, 16)
    assert len(data) == 40 and data[5][1] == 1
    torch.manual_seed(0)
    (first, _), (second, _) = data[0], data[0]
    assert first.shape == (3, 16, 16) and not torch.equal(first, second), "another crop"
    data.transform = np.asarray
    assert np.abs(data[0][0].astype(int) - PIXELS[0]).max() < 8


def test_a_worker_feeds_the_training(monkeypatch: pytest.MonkeyPatch, results) -> None:
    monkeypatch.setattr(datasets, "load", lambda *_: IMAGES)
    run = BRIEF | {"workload": "hpc_utils.train.jpegs:jpegs", "global_batch": 32, "workload_args": {"size": 16}}
    result, _ = fit(**run, loader_workers=1)
    assert result.tables()["epochs"].samples.tolist() == [96]
