"""What smoke runs (`make bench BENCH=--quick`) leave out: the plain loop with each of its optimisations."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import optimizations, overhead
from hpc_utils import paths
from hpc_utils.config import RunConfig

EACH = """
import json, sys
from benchmarks.plain_loop import main
work = {"workload": "cnn", "dataset": "digits", "batch": 32, "steps": 3, "warmup": 1, "threads": 1}
print(json.dumps([main(**work, **changes) for changes in json.loads(sys.argv[1])]))
"""


def python(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=paths.root(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("gpu", [False, True])
def test_what_the_plain_loop_is_given_ours_has_a_knob_for(gpu: bool) -> None:
    for one in optimizations.optimizations(gpu, 2, compiled=True):
        if one.ours is not None:
            RunConfig(parallel="none", **one.ours)


def test_the_plain_loop_takes_each_optimisation() -> None:
    known = [dict(one.plain) for one in optimizations.optimizations(gpu=False, workers=1, compiled=False)]
    changes = [{}, {"precision": "default"}, *known]
    found = json.loads(python("-c", EACH, json.dumps(changes)).splitlines()[-1])
    assert len(found) == len(changes)
    for timing in found:
        assert timing["images_per_second"] > 0
        assert 0 < timing["step_p50"] <= timing["step_p95"] <= timing["step_p99"]


def test_ranks_grow_in_powers_of_two_as_far_as_there_are_devices() -> None:
    assert [overhead.powers(places) for places in (1, 2, 3, 8)] == [[], [2], [2], [2, 4, 8]]
