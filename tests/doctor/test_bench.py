"""`hpc bench` on this machine: real ranks, real files, a real training step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from hpc_utils import datasets, provenance
from hpc_utils.cli import main
from hpc_utils.config import RunConfig
from hpc_utils.doctor import process
from hpc_utils.doctor.bench import compute, storage
from hpc_utils.doctor.bench.__main__ import main as bench_main
from hpc_utils.doctor.process import Console
from hpc_utils.provenance import core_groups
from hpc_utils.records import compute_profile, probes
from hpc_utils.train.epoch_stats import Usage, UsageMeter
from hpc_utils.train.ranks import Ranks
from hpc_utils.train.resolve import resolve
from tests.datasets.layouts import cifar_binary, know, pixels
from tests.support import wait_for

HANG = 120  # s


@pytest.fixture
def cifar10(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a small CIFAR-10."""
    train, test = pixels(1, 600, (32, 32, 3)), pixels(2, 50, (32, 32, 3))
    know(monkeypatch, "cifar10", train, test)
    monkeypatch.setenv("HPC_DATA", str(tmp_path / "data"))
    datasets.fetch("cifar10", mirror=cifar_binary(tmp_path / "mirror" / "cifar-10-batches-bin", train, test).parent)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["storage", "--dataset=digits"], "digits"),
        (["storage", "--dataset=mnist"], "hpc data fetch mnist"),
        (["allreduce", "--nproc=1"], "--nproc"),
        (["compute", "--batches", "8;16"], "--batches"),
        (["compute", "--repeats", "0"], "--repeats"),
        (["compute", "-p", "profile=torch", "-p", "accumulate=2"], "profile=torch, accumulate=2"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    cifar10, results: Path, arguments, message
) -> None:
    done = CliRunner().invoke(main, ["bench", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert not results.exists()


def test_every_place_is_read_cold_and_warm_or_skipped_and_its_copy_is_gone(cifar10: Path, monkeypatch) -> None:
    monkeypatch.setattr(storage, "MOMENT", 0.001)
    monkeypatch.setenv("HPC_NODE_LOCAL", str(cifar10 / "nowhere"))
    record = storage.measure(Ranks(), dataset="cifar10", seconds=60, console=Console(shown=False), repeats=2)
    assert (record["bytes"], record["images"]) == (600 * 32 * 32 * 3, 600)
    shared, local, memory = record["places"]
    assert (local["place"], local["skipped"]) == ("node-local", "no folder nowhere")
    for place in (shared, memory):
        assert place["cold"]["bytes"] == place["warm"]["bytes"] == record["bytes"]
        assert [load["batch"] for load in place["loader"]] == [32, 64, 128, 256, 512]
        times = [place["cold"]["seconds"], place["warm"]["seconds"], place["loader"][0]["seconds_per_batch"]]
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in times)
    assert local["skipped"] in "\n".join(storage.table(record))
    assert not [path for folder in (cifar10 / "data", Path("/dev/shm")) for path in folder.glob(".hpc-bench-*")]


def test_no_copy_is_left_when_the_launcher_is_killed(tmp_path: Path) -> None:
    home = tmp_path / ".hpc-bench-x"
    (tmp_path / "data" / "set").mkdir(parents=True)
    rank = f"""
import time
from pathlib import Path
from hpc_utils.doctor import process
from hpc_utils.doctor.bench import storage
process.start(60, grace=5)
with storage.copied("set", Path({str(home)!r})):
    time.sleep(60)
"""
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {json.dumps(rank)}])"
    env = os.environ | {"HPC_DATA": str(tmp_path / "data")}
    process = subprocess.Popen([sys.executable, "-c", launcher], env=env)
    wait_for(home.exists)
    process.kill()
    process.wait(HANG)
    wait_for(lambda: not home.exists())


def test_a_profile_holds_phases_and_when_gradients_are_ready(results: Path) -> None:
    """... and what it is of, whatever the layout: another optimizer or precision is another."""
    config = RunConfig(workload="cnn", threads_per_rank=1, device="cpu", global_batch=7)
    path = compute.profile(config, [8, 16], 3, print)
    record = probes.newest("compute", name=path.stem)
    sizes = {name: parameter.nbytes for name, parameter in resolve(config).model().named_parameters()}
    assert {gradient["name"]: gradient["bytes"] for gradient in record["ready"]} == sizes
    assert record["gradient_bytes"] == sum(sizes.values()) == 4 * record["parameters"]
    fractions = [gradient["fraction"] for gradient in record["ready"]]
    assert fractions == sorted(fractions) and fractions[0] > 0 and fractions[-1] <= 1
    modules = [gradient["name"].partition(".")[0] for gradient in record["ready"]]
    assert list(dict.fromkeys(modules)) == ["8", "6", "2", "0"], "the last layer's gradients come first"
    assert [measured["batch"] for measured in record["batches"]] == [8, 16]
    for measured in record["batches"]:
        assert all(len(measured[phase]) == 3 and min(measured[phase]) > 0 for phase in compute_profile.PHASES)
    assert (record["threads_per_rank"], record["device"]) == (1, "cpu")
    assert provenance.hardware_id().endswith(record["hardware_id"])

    def is_of(**changes: object) -> bool:
        return compute_profile.computed(config.model_copy(update=changes)).items() <= record.items()

    assert is_of(global_batch=12) and is_of(global_batch=None, batch_per_device=4)
    assert not is_of(optimizer="adamw") and not is_of(precision="bf16") and not is_of(compile="default")


@pytest.mark.gpu
def test_a_captured_step_is_timed_as_a_whole(results: Path) -> None:
    run = {"loader": "device", "fused_optimizer": True, "step_graph": True}
    path = compute.profile(RunConfig(workload="cnn", device="cuda", **run), [16, 32], 2, print)
    record = probes.newest("compute", name=path.stem)
    assert [(size["batch"], len(size["step"])) for size in record["batches"]] == [(16, 2), (32, 2)]
    assert min(seconds for size in record["batches"] for seconds in size["step"]) > 0 and record["ready"] == []


@pytest.mark.parametrize(("outside", "is_told"), [(0.0, False), (0.4, False), (0.6, True)])
def test_a_bench_warns_if_others_used_its_cores(cifar10, monkeypatch, capsys, outside: float, is_told: bool) -> None:
    used = Usage(seconds=10.0, outside_seconds=outside, steal_seconds=0.0)
    monkeypatch.setattr(UsageMeter, "stop", lambda self: used)
    monkeypatch.setattr(storage, "MOMENT", 0.001)
    monkeypatch.setattr(process, "start", lambda *limits: Console(shown=True))
    assert bench_main(["storage", "--repeats=1"]) == 0
    assert ("6% of a rank's cores" in capsys.readouterr().out) == is_told


@pytest.mark.skipif(not psutil.LINUX, reason="/proc/stat")
def test_a_profile_beside_another_program_warns(results: Path) -> None:
    told = []
    spin = "import os; os.sched_setaffinity(0, {cpu})\nwhile True: pass".replace("cpu", str(core_groups()[0][0]))
    with subprocess.Popen([sys.executable, "-c", spin]) as other:
        try:
            compute.profile(RunConfig(workload="cnn", device="cpu", threads_per_rank=1), [64], 60, told.append)
        finally:
            other.kill()
    assert len(told) == 61


def test_a_profile_of_amp_is_one_of_the_format_that_the_device_has(results: Path) -> None:
    path = compute.profile(RunConfig(workload="cnn", device="cpu", precision="amp"), [8], 1, print)
    assert probes.newest("compute", name=path.stem)["precision"] in ("bf16", "fp16")


def test_a_cold_read_that_memory_served_shows_no_speed_of_a_disk() -> None:
    place = {"place": "shared", "filesystem": "ext4", "warm": {"bytes": 8e6, "seconds": [0.01]}}
    rates = [
        "\n".join(storage.table({"dataset": "cifar10", "bytes": 8e6, "nodes": 1, "ranks_per_node": 1, "places": [
            place | {"cold": {"bytes": 8e6, "seconds": [seconds]}}]}))
        for seconds in (0.08, 0.011)
    ]  # fmt: skip
    assert rates[0].split()[-2:] == ["100", "800"]
    assert rates[1].split()[-3:] == ["from", "memory", "800"]
