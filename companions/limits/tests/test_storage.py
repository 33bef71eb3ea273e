"""`hpc bench storage` on this machine: real files, read from each place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from companions.limits import storage
from hpc_utils import datasets
from hpc_utils.cli import main
from hpc_utils.doctor.process import Console
from hpc_utils.train.ranks import Ranks
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
    ("dataset", "message"), [("digits", "digits is embedded"), ("mnist", "hpc data fetch mnist")]
)
def test_what_cannot_be_read_is_refused_before_anything_starts(
    cifar10, results: Path, dataset: str, message: str
) -> None:
    done = CliRunner().invoke(main, ["bench", "storage", f"--dataset={dataset}"])
    assert done.exit_code == 2 and message in done.stderr
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
from companions.limits import storage
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


def test_a_cold_read_that_memory_served_shows_no_speed_of_a_disk() -> None:
    place = {"place": "shared", "filesystem": "ext4", "warm": {"bytes": 8e6, "seconds": [0.01]}}
    rates = [
        "\n".join(storage.table({"dataset": "cifar10", "bytes": 8e6, "nodes": 1, "ranks_per_node": 1, "places": [
            place | {"cold": {"bytes": 8e6, "seconds": [seconds]}}]}))
        for seconds in (0.08, 0.011)
    ]  # fmt: skip
    assert rates[0].split()[-2:] == ["100", "800"]
    assert rates[1].split()[-3:] == ["from", "memory", "800"]
