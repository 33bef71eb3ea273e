"""One question, answered from runs: how long will a step take?"""

from __future__ import annotations

import math

import pandas as pd
import pytest

from hpc_utils.analyze.model.fit import predictor
from hpc_utils.analyze.model.step import PHASES, Work

from ..runs import run

HERE = {
    "workload": "cnn",
    "dataset": "digits",
    "precision": "fp32",
    "hardware_id": "rehearsal-0123abcd",
    "settings": "s",
}
LAYOUT = {
    "nodes": 1,
    "ranks_per_node": 1,
    "world_size": 1,
    "parallel": "none",
    "batch_per_device": 64,
    "cores_per_rank": 0,
}


def history() -> tuple[pd.DataFrame, pd.DataFrame]:
    """64 samples take 0.2 s alone; 0.25 s on two nodes."""
    runs, epochs = [], []
    for world, seconds, repeat in ((world, 0.15 + 0.05 * world, repeat) for world in (1, 2) for repeat in (1, 2, 3)):
        more = {"nodes": world, "batch": 64 * world, "repeat": repeat, "run_id": f"{world}-{repeat}"}
        how = HERE | {"parallel": "none" if world == 1 else "ddp", "parameters": 1_000_000, "bucket_mb": 25.0}
        runs.append(run(world, 10 * seconds, **more | how))
        phases = {f"{phase}_seconds": seconds / 4 for phase in PHASES}
        epochs.append({"run_id": f"{world}-{repeat}", "step_p50": seconds, "step_p95": seconds * 1.02} | phases)
    return pd.DataFrame(runs), pd.DataFrame(epochs)


def test_what_was_measured_is_predicted_and_more_nodes_take_longer():
    predict = predictor(*history())
    alone = predict(HERE | LAYOUT).seconds
    assert alone.value == pytest.approx(0.2, rel=0.03) and alone.low < 0.2 < alone.high
    many = predict(HERE | LAYOUT | {"nodes": 32, "world_size": 32, "parallel": "ddp"})
    two = predict(HERE | LAYOUT | {"nodes": 2, "world_size": 2, "parallel": "ddp"})
    assert many.seconds.value > two.seconds.value > 0.2
    assert many.note == "extrapolation: 32 ranks (1 to 2 measured), 32 nodes (1 to 2 measured)" and two.note == ""
    assert predict(HERE | LAYOUT | {"nodes": 64, "world_size": 64, "parallel": "ddp"}) is None, (
        "32 times the measured"
    )


def test_other_hardware_or_a_single_configuration_says_nothing():
    runs, epochs = history()
    for other in ({"hardware_id": "elsewhere"}, {"settings": "a larger model"}):
        assert predictor(runs, epochs)(HERE | LAYOUT | other) is None
    none = [runs[runs.world_size == 1]]
    none += [runs.assign(**other) for other in ({"oversubscribed": True}, {"profile": "nsys"}, {"comm_hook": "fp16"})]
    assert [predictor(own, epochs)(HERE | LAYOUT) for own in none] == [None] * 4


def test_a_compute_profile_of_the_same_machine_is_preferred_to_phases():
    batches = [{"batch": batch} | {phase: [0.05 * batch / 64] * 3 for phase in PHASES} for batch in (32, 64, 128)]
    profile = {name: HERE[name] for name in ("workload", "dataset", "precision")} | {
        "hardware_id": "0123abcd", "threads_per_rank": 1, "parameters": 1_000_000, "device": "cpu", "device_name": "X", "batches": batches,
        "ready": [{"name": "w", "bytes": 4e6, "fraction": 1.0}], "name": "p",
    }  # fmt: skip
    runs, epochs = history()
    assert Work.of(runs, epochs, [profile]).source == "compute profile p"
    phases = "phases of 3 runs on one rank (none)"
    for other in ({"device_name": "another"}, {"compile": "default"}, {"ready": []}):
        assert Work.of(runs, epochs, [profile | other]).source == phases, (
            "another device, other steps, whole steps only"
        )
    point = HERE | LAYOUT | {"batch_per_device": 128}
    assert predictor(runs, epochs, [profile])(point).seconds.value == pytest.approx(0.4, rel=0.03)
    assert math.isclose(predictor(*history(), gbit=0.01)(HERE | LAYOUT).seconds.value, 0.2, rel_tol=0.03)
