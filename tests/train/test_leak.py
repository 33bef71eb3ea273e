"""A loop that leaks on purpose, and the memory log that shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_utils import records
from hpc_utils.analyze.profiles import profiled_runs
from hpc_utils.config import RunConfig
from hpc_utils.train import train

from .conftest import OUTSIDE

LEAK = """
    import dataclasses
    import time

    kept = []

    def keeping(mebibytes):
        entropy = nn.CrossEntropyLoss()

        def loss(outputs, targets):
            time.sleep(0.02)
            kept.append(torch.ones(mebibytes * 2**18))
            return entropy(outputs, targets)

        return dataclasses.replace(make(), loss=loss)
"""


@pytest.mark.parametrize("mebibytes", [4, 0])
def test_memory_that_every_step_keeps_is_a_leak(
    mebibytes: int, module: Callable[[str, str], Path], results: Path
) -> None:
    module("leaking", OUTSIDE + LEAK)
    options = {"workload_args": {"mebibytes": mebibytes}, "monitor_seconds": 0.1, "evaluate_every": 0}
    train(
        RunConfig(workload="leaking:keeping", device="cpu", epochs=30, steps_per_epoch=3, global_batch=32, **options)
    )
    found = records.load(results)
    (row,) = profiled_runs.memory_growth(results, found.runs, found.epochs).itertuples()
    assert row.device == "rank0"
    assert row.is_leak == bool(mebibytes)
    kept = row.last_quarter_bytes - row.second_quarter_bytes
    if mebibytes:
        assert kept > 90 / 5 * mebibytes * 2**20, "half of the steps lie between"
        assert row.growth == pytest.approx(kept / row.second_quarter_bytes)
    assert profiled_runs.memory_growth(results, found.runs, found.epochs[:0]).empty
