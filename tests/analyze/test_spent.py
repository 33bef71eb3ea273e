"""What runs took altogether, on the committed ones."""

from __future__ import annotations

import json

import pytest

from hpc_utils import paths, records
from hpc_utils.analyze import spent


def test_hours_add_up_over_devices_nodes_and_cores() -> None:
    found = records.load(paths.root() / "results/reference/rehearsal")
    own = found.runs[(found.runs.world_size == 2) & (found.runs.device == "cpu")]
    total = spent.total(own, found.epochs)
    assert total.runs == len(own) > 3
    assert total.device_hours == pytest.approx(2 * sum(_seconds(run, found) for run in own.itertuples()) / 3600)
    assert total.core_hours == pytest.approx(total.device_hours)  # one thread a rank
    assert total.node_hours <= total.device_hours
    assert (total.counted, total.energy_kwh) == (0, 0.0)


def test_waiting_devices_use_no_cores() -> None:
    found = records.load(paths.root() / "results/reference/rehearsal")
    waiting = found.runs[found.runs.device != "cpu"]
    total = spent.total(waiting, found.epochs)
    assert total.device_hours > 0
    assert total.core_hours == 0


def test_no_runs_took_nothing() -> None:
    found = records.load(paths.root() / "results/reference/rehearsal")
    assert spent.total(found.runs.iloc[:0], found.epochs).device_hours == 0


def _seconds(run, found) -> float:
    """Set-up, warm-up, training, evaluation and checkpoints, as the run's own files say."""
    told = json.loads((paths.root() / "results/reference/rehearsal" / run.path / "run.json").read_text())
    epochs = found.epochs[found.epochs.run_id == run.run_id]
    rest = epochs[["seconds", "eval_seconds", "checkpoint_seconds"]].astype(float).fillna(0).to_numpy().sum()
    return told["setup_seconds"] + told["warmup_seconds"] + rest
