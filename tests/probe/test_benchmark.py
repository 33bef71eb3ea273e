"""`hpc bench` on this machine: real ranks, real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpc_utils.probe.benchmark import pages, places, storage
from hpc_utils.probe.benchmark.say import Say
from hpc_utils.records import probes
from hpc_utils.train.ranks import Ranks
from tests.datasets.layouts import cifar_binary, know, pixels

HANG = 120  # s
HPC = [sys.executable, "-m", "hpc_utils.cli"]


@pytest.fixture
def cifar10(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a small CIFAR-10, and TMPDIR beside it."""
    from hpc_utils import datasets

    train, test = pixels(1, 600, (32, 32, 3)), pixels(2, 50, (32, 32, 3))
    know(monkeypatch, "cifar10", train, test)
    monkeypatch.setenv("HPC_DATA", str(tmp_path / "data"))
    datasets.fetch("cifar10", mirror=cifar_binary(tmp_path / "mirror" / "cifar-10-batches-bin", train, test).parent)
    local = tmp_path / "local"
    local.mkdir()
    monkeypatch.setenv("HPC_NODE_LOCAL", str(local))
    return tmp_path


def copies(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.glob(".hpc-bench-*")]


@pytest.mark.soak  # tests/slurm measures on two nodes
def test_two_ranks_measure_fit_and_keep_a_record(results: Path) -> None:
    command = [*HPC, "bench", "allreduce", "--repeats=2", "--largest=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stdout + done.stderr
    record = probes.newest("allreduce")
    assert str(results / "probes/allreduce" / f"{record['name']}.json") in done.stdout
    assert (record["nodes"], record["ranks_per_node"], record["world_size"]) == (1, 2, 2)
    assert record["hardware_id"] == record["provenance"]["hardware_id"]
    assert record["backend"] in ("gloo", "nccl", "rccl") and record["link_gbit"] is None
    (group,) = record["groups"].values()
    assert (group["ranks"], group["nodes"], group["ranks_per_node"]) == (2, 1, 2)
    assert [sample["bytes"] for sample in group["samples"]] == [4 * 4**power for power in range(10)]
    assert all(len(sample["seconds"]) == 2 and min(sample["seconds"]) > 0 for sample in group["samples"])
    assert "all: latency" in done.stdout and "Gbit/s" in done.stdout
    assert "1 MiB" in done.stdout and "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["storage", "--dataset=digits"], "it needs no storage"),
        (["storage", "--dataset=mnist"], "hpc data fetch mnist"),
        (["allreduce", "--nproc=1"], "--nproc"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(cifar10, results: Path, arguments, said) -> None:
    done = subprocess.run([*HPC, "bench", *arguments], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not results.exists()


def test_every_place_is_read_cold_and_warm_and_its_copy_is_gone(cifar10: Path, monkeypatch) -> None:
    monkeypatch.setattr(storage, "MOMENT", 0.01)
    record = storage.measure(Ranks(), dataset="cifar10", repeats=2, seconds=60, say=Say())
    assert (record["bytes"], record["images"]) == (600 * 32 * 32 * 3, 600)
    assert [one["place"] for one in record["places"]] == ["shared", "node-local", "memory"]
    for one in record["places"]:
        assert "skipped" not in one, one
        assert one["cold"]["bytes"] == one["warm"]["bytes"] == record["bytes"]
        assert one["sequential"]["cold"]["bytes"] > record["bytes"], "the whole file, with its header"
        for reads in (one["cold"], one["warm"], one["sequential"]["cold"], one["sequential"]["warm"]):
            assert len(reads["seconds"]) == 2 and min(reads["seconds"]) > 0
        assert [load["batch"] for load in one["loader"]] == [32, 64, 128, 256, 512]
        assert all(min(load["seconds_per_batch"]) > 0 for load in one["loader"])
        if one["filesystem"] in ("tmpfs", "ramfs"):
            assert min(one["cold"]["resident"]) > 0.9, "memory cannot be dropped, and that is seen"
    assert "\n".join(storage.table(record)).count("sequential") == 3
    assert not copies(cifar10 / "data", cifar10 / "local", Path("/dev/shm"))
    assert os.environ["HPC_DATA"] == str(cifar10 / "data")


def test_a_place_without_room_is_left_out_and_says_so(cifar10: Path, monkeypatch) -> None:
    monkeypatch.setenv("HPC_NODE_LOCAL", str(cifar10 / "nowhere"))
    monkeypatch.setattr(storage, "MOMENT", 0.001)
    monkeypatch.setattr(places.Place, "filesystem", "nfs4")
    record = storage.measure(Ranks(), dataset="cifar10", repeats=1, seconds=60, say=Say())
    local = record["places"][1]
    assert local == {"place": "node-local", "filesystem": "nfs4", "skipped": "no folder nowhere"}
    assert "not read: no folder nowhere" in "\n".join(storage.table(record))


def test_dropped_pages_are_told_from_those_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(2**20))
    assert pages.resident(path) in (None, 1.0)
    if places.Place("", tmp_path).filesystem in ("tmpfs", "ramfs", "overlay", None) or not hasattr(
        os, "posix_fadvise"
    ):
        pytest.skip("pages of this file system are not dropped")
    pages.drop(path)
    assert pages.resident(path) in (None, 0.0)
    path.read_bytes()
    assert pages.resident(path) in (None, 1.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_no_copy_is_left(tmp_path: Path, number) -> None:
    """A rank that is told to end, and one whose launcher is killed."""
    home = tmp_path / ".hpc-bench-x"
    (tmp_path / "data" / "set").mkdir(parents=True)
    rank = f"""
import signal, sys, time
from pathlib import Path
from hpc_utils.probe import process
from hpc_utils.probe.benchmark import __main__ as main, places
signal.signal(signal.SIGTERM, main._leave)
process.begin(60, grace=5)
with places.copied("set", Path({str(home)!r})):
    time.sleep(60)
"""
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {json.dumps(rank)}])"
    env = os.environ | {"HPC_DATA": str(tmp_path / "data")}
    process = subprocess.Popen([sys.executable, "-c", rank if number == signal.SIGTERM else launcher], env=env)
    _until(home.exists)
    process.send_signal(number)
    process.wait(HANG)
    _until(lambda: not home.exists())


def _until(what) -> None:
    end = time.monotonic() + HANG
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)
