"""Compute profiles: what they are of, and how long whole steps took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_utils.config import RunConfig
from hpc_utils.records import compute_profile, identity

COMMITTED = "results/reference/rehearsal/probes/compute/resnet18-cifar10-fp32-t0.14-300bbc26-8a772476.json"


def test_whole_steps_are_sums_of_phases_or_what_was_measured() -> None:
    phases = {"batch": 8, "data": [1.0, 2.0], "forward": [3.0, 4.0], "backward": [5.0, 6.0], "optimizer": [7.0, 8.0]}
    record = {"batches": [{"batch": 16, "step": [30.0, 31.0]}, phases]}
    assert list(compute_profile.step_seconds(record).items()) == [(8, [16.0, 20.0]), (16, [30.0, 31.0])]


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"workload": "resnet18", "compile": "default", "loader": "workers", "loader_workers": 2, "lr": 0.3},
        {"workload": "my:net", "dataset": "", "workload_args": {"depth": 3, "names": "a, b"}, "precision": "bf16"},
    ],
)  # fmt: skip
def test_a_run_s_row_has_the_options_that_its_profile_must_match(changes: dict, monkeypatch) -> None:
    monkeypatch.setattr(identity.source_code, "digest", lambda workload: "0123abcd")
    config = RunConfig(**changes)
    parameters = identity.measured(config, 1)
    row = {name: parameters[name] for name in ("workload", "dataset", "precision")}
    row |= {"settings": identity.settings(parameters)}
    assert compute_profile.computed_in(row) == compute_profile.computed(config)


def test_a_record_without_newer_options_was_taken_with_their_defaults() -> None:
    record = json.loads((Path(__file__).parents[2] / COMMITTED).read_text())
    assert not {"compile", "step_graph", "loader"} & set(record)
    run = {"workload": "resnet18", "dataset": "cifar10", "precision": "fp32", "device": "cpu", "device_name": "AMD EPYC",
           "hardware_id": "rehearsal-cpu-300bbc26", "threads_per_rank": 0.14}  # fmt: skip
    assert compute_profile.fits(record, run | {"settings": "epochs=1"})
    for other in ('compile="default"', "cutout=8", "fused_optimizer=true"):
        assert not compute_profile.fits(record, run | {"settings": other})
