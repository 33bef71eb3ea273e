"""What smoke runs (`make bench BENCH=--quick`) leave out: the plain loop with each of its optimisations."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from benchmarks import optimizations, overhead
from benchmarks.sides import Timing
from hpc_utils import paths
from hpc_utils.config import RunConfig

EACH = """
import json, sys
import torch
from benchmarks import batches
from benchmarks.plain_loop import main
from hpc_utils.train import memory

made, ended = batches.batches, []

def watched(*about, **options):
    epoch = made(*about, **options)
    def to_its_end(steps):
        yield from epoch(steps)
        ended.append(steps)
    return to_its_end

def faults():
    before = memory.minor_faults()
    for _ in range(3):
        [torch.ones(6 * 2**20) for _ in range(4)]  # of 24 MiB; more together than glibc keeps by itself
    return memory.minor_faults() - before

def one(changes):
    ended.clear()
    timing = main("cnn", "digits", 32, 3, 2, 1, **changes)
    faults()
    return timing | {"epochs": list(ended), "faults": faults()}

batches.batches = watched
print(json.dumps([one(changes) for changes in json.loads(sys.argv[1])]))
"""


def python(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=paths.root(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("gpu", [False, True])
def test_the_options_of_the_plain_loop_are_options_of_ours(gpu: bool) -> None:
    others = optimizations._combined(one.ours for one in optimizations.computing(gpu, compile=True))
    loading = list(optimizations.loaders(gpu, threads=3))
    assert [one.ours["loader"] for one in loading] == ["workers"] * (len(loading) - 1) + ["device"]
    for one in loading:
        RunConfig(parallel="none", **one.ours | others)


@pytest.mark.parametrize("gpu", [False, True])
def test_what_this_machine_cannot_do_is_left_out_aloud(
    gpu: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", "")
    assert not [one for one in optimizations.computing(gpu, compile=True) if "compile" in one.ours]
    assert "left out: compile=" in capsys.readouterr().err
    assert not [one for one in optimizations.computing(False, compile=None) if "compile" in one.ours]
    assert "left out: compile: on a CPU only `--compile` measures it" in capsys.readouterr().err


def test_the_best_is_the_fastest_loader_and_what_alone_on_the_device_is_not_slower() -> None:
    loading = list(optimizations.loaders(gpu=False, threads=2))
    others = [optimizations.Optimization(name, {name: 1}, {}) for name in ("slower", "faster")]
    rates = {"slower": 190.0, "faster": 260.0, optimizations.PLAIN: 100.0, optimizations.ON_DEVICE: 200.0}

    def best() -> list[str]:
        values = {name: [Timing(rate * drift, 0, 0, 0) for drift in (1, 0.5)] for name, rate in rates.items()}
        return [one.name for one in optimizations.best(loading, others, values)]

    assert best() == [optimizations.ON_DEVICE, "faster"]
    rates |= {optimizations.PLAIN: 300.0}
    assert best() == [optimizations.PLAIN, "faster"]


@pytest.mark.soak
def test_the_plain_loop_takes_each_optimisation_and_every_epoch_to_its_end() -> None:
    known = [dict(one.plain) for one in optimizations.computing(gpu=False, compile=False)]
    changes = [{}, {"precision": "default"}, {"workers": 1}, {"data": "device"}, *known, {}, {"data": "device"}]
    found = json.loads(python("-c", EACH, json.dumps(changes)).splitlines()[-1])
    assert len(found) == len(changes)
    for timing in found:
        assert timing["images_per_second"] > 0
        assert 0 < timing["step_p50"] <= timing["step_p95"] <= timing["step_p99"]
        assert timing["epochs"] == [2, 3]
    assert known[-1] == {"keep_freed": 1}
    if platform.libc_ver()[0] == "glibc":  # which keeps from there on
        assert max(timing["faults"] for timing in found[-3:]) < 10


def test_ranks_grow_in_powers_of_two_as_far_as_there_are_devices() -> None:
    assert [overhead.powers(places) for places in (1, 2, 3, 8)] == [[], [2], [2], [2, 4, 8]]
