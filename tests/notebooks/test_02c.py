"""Plain PyTorch's losses are those of `train`, on one rank and on two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpc_utils import paths, records
from hpc_utils.publish.chapters import execute

from .chapters import said


@pytest.mark.soak
@pytest.mark.timeout(200)
def test_plain_ddp_learns_what_train_learns(results: Path, tmp_path: Path) -> None:
    output = execute(paths.notebooks() / "02c_plain_ddp.ipynb", tmp_path / "out.ipynb")
    losses = [float(text) for text in re.findall(r"train loss (\d+\.\d{6}) on", said(output))]
    one_rank, two_ranks, half_precision = losses[:3], losses[3:6], losses[6:]
    trained = records.load(results).epochs.train_loss.tolist()
    # rounding grows: in the third epoch to 2e-4
    assert one_rank[:2] == pytest.approx(trained[:2], rel=1e-4) and one_rank == pytest.approx(trained, rel=1e-3)
    assert two_ranks[:2] == pytest.approx(trained[:2], rel=1e-4) and two_ranks == pytest.approx(trained, rel=1e-3)
    assert half_precision == pytest.approx(one_rank, rel=0.01) and half_precision != two_ranks
