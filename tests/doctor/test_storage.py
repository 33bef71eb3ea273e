"""File systems: kind, space and speed, hard links, and whether all nodes see the same."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch.distributed as dist

from hpc_utils.doctor import storage
from hpc_utils.doctor.check import Context, Options, Verdict
from hpc_utils.doctor.mailbox import Mailbox

from .conftest import alone, seen

GIB = 2**30
GOOD = {"filesystem": "lustre", "free_bytes": 400 * GIB, "free_files": 10**8, "write": 900e6, "failure": ""}


@pytest.fixture
def context(tmp_path, monkeypatch) -> Context:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HPC_DATA", str(tmp_path / "data"))
    return alone()


def test_the_innermost_mount_is_the_file_system(monkeypatch) -> None:
    """In the order of /proc/self/mounts; the last of two mounts on one folder covers the other."""
    mounts = [("/", "overlay"), ("/scratch", "lustre"), ("/scratch/local", "ext4"), ("/scratch/local", "tmpfs")]
    partitions = [SimpleNamespace(mountpoint=folder, fstype=kind) for folder, kind in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: partitions)
    kinds = {"/scratch/study": "lustre", "/scratch/local/x": "tmpfs", "/scratchy": "overlay"}
    assert {folder: storage.filesystem(Path(folder)) for folder in kinds} == kinds


def test_a_real_folder_is_written_and_read_and_left_as_it_was(context, tmp_path) -> None:
    facts = storage.measure_results(context)
    assert min(facts["write"], facts["free_bytes"]) > 0 and facts["filesystem"] and facts["failure"] == ""
    assert list((tmp_path / "results").iterdir()) == []


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"free_files": None, "filesystem": "btrfs"}, Verdict.PASS),
        ({"filesystem": "tmpfs"}, Verdict.FAIL),
        ({"free_bytes": 12 * 2**20}, Verdict.FAIL),
        ({"free_files": 12}, Verdict.FAIL),
        ({"write": 3e6}, Verdict.FAIL),
        ({"failure": "Read-only file system"}, Verdict.FAIL),
    ],
)
def test_the_results_folder(facts, verdict) -> None:
    found = storage.judge_results(GOOD | facts)
    assert found.verdict is verdict
    assert ("HPC_RESULTS" in found.fix) is (verdict is Verdict.FAIL)


def test_data_sets_are_read_fast_on_all_nodes(context, tmp_path) -> None:
    assert storage.measure_data(context)["available"] == ["digits"], "it is embedded"
    (tmp_path / "data/cifar10").mkdir(parents=True)
    images = np.zeros((4 * 2**10, 2**10), np.uint8)
    np.save(tmp_path / "data/cifar10/train-images.npy", images)
    facts = storage.measure_data(context)
    assert facts["bytes"] > images.nbytes and facts["read"] > 0
    fast, slow, small = facts | {"read": 1e9}, facts | {"read": 1e6}, facts | {"read": 1e6, "bytes": 2**10}
    assert storage.judge_data(seen(fast, small)).verdict is Verdict.PASS
    more = fast | {"available": ["cifar10", "digits"]}
    for lacking in (seen(fast, slow), seen(more, fast)):
        found = storage.judge_data(lacking)
        assert (found.verdict, found.where) == (Verdict.FAIL, "node1 rank 1")
    assert storage.judge_data(seen(fast | {"available": []})).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("link", ["works", "refused", "copies", "overwrites"])
def test_a_file_system_needs_true_links(context, monkeypatch, link) -> None:
    real = os.link

    def false(first: Path, second: Path) -> None:
        if link == "refused":  # exFAT, some FUSE and object stores: link(2), ERRORS, EPERM
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        if link == "copies":
            with second.open("xb") as file:
                file.write(first.read_bytes())
        if link == "overwrites":
            second.unlink(missing_ok=True)
            real(first, second)

    if link != "works":
        monkeypatch.setattr(os, "link", false)
    found = storage.judge_results(GOOD | {"failure": storage.measure_results(context)["failure"]})
    assert found.verdict is (Verdict.PASS if link == "works" else Verdict.FAIL)


def test_whether_all_nodes_see_a_file(context, tmp_path, monkeypatch) -> None:
    store = dist.HashStore()
    first, second = (Context(Options(), Mailbox(store), rank=rank, world_size=2, timeout=1.0) for rank in range(2))
    facts = storage.measure_shared(first), storage.measure_shared(second)
    assert storage.judge_shared(seen(*facts)).verdict is Verdict.PASS
    first.cleanup.close()
    found = storage.judge_shared(seen(facts[0], storage.measure_shared(second)))
    assert (found.verdict, found.where) == (Verdict.FAIL, "node1 rank 1")


@pytest.mark.parametrize(
    ("mount", "measured"),
    [
        ("mount -t tmpfs -o size=12m tmpfs {}", "tmpfs, 0.0 GiB"),
        ("mount --bind {0} {0} && mount -o remount,bind,ro {0}", "Read-only file system"),
    ],
)
def test_real_file_systems_that_are_small_or_read_only(tmp_path, namespaces, mount, measured) -> None:
    """In mounts of its own, which end with the process."""
    results = tmp_path / "results"
    results.mkdir()
    code = (
        "from hpc_utils.doctor import storage; from tests.doctor.conftest import alone\n"
        "found = storage.judge_results(storage.measure_results(alone())); print(found.verdict, found.measured, sep='|')"
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", f'{mount.format(results)} && exec "$0" -c "$1"', sys.executable, code],
        env=os.environ | {"HPC_RESULTS": str(results)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith("fail|") and measured in done.stdout, done.stderr
