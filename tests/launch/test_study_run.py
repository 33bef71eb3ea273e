"""A study on this machine: one of its runs fails."""

from __future__ import annotations

from hpc_utils import records

from .conftest import Bench

STUDY = """
title = "One of two cannot be trained"
[parameters]
workload = "cnn"
dataset = "digits"
parallel = "none"
epochs = 1
steps_per_epoch = 2
warmup_steps = 0
evaluate_every = 0
lr_warmup_epochs = 0
[[series]]
name = "rates"
notebook = "01_baseline"
ranks = [1]
matrix = { lr = [1e30, 0.01] }
"""


def test_a_run_that_fails_does_not_take_the_others_with_it(bench: Bench) -> None:
    study = bench.folder / "rates.toml"
    study.write_text(STUDY)
    outcome = bench.hpc("study", "run", study)
    assert outcome.code == 1 and "Traceback" not in outcome.err.splitlines()[-1]
    assert "the loss became" in outcome.err
    found = records.load(bench.results)
    assert len(found.runs) == 1 and list(found.unfinished.values()) == ["failed"]
    last = outcome.err.splitlines()[-1]
    assert "1 of 2 runs are not complete" in last and next(iter(found.unfinished)) in last
