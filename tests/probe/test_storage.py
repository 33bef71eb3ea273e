"""File systems: their kind, room and speed, hard links, and whether all nodes see the same."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch.distributed as dist

from hpc_utils.probe import filesystem, storage
from hpc_utils.probe.bench import Bench, Options
from hpc_utils.probe.check import Verdict
from hpc_utils.probe.exchange import Exchange

from .conftest import seen

GIB = 2**30
# /proc/self/mounts as on a cluster's node: scratch on Lustre, home on NFS, a container's root, a folder with a space.
MOUNTS = """\
overlay / overlay rw,relatime,lowerdir=/a:/b,upperdir=/u,workdir=/w 0 0
tmpfs /tmp tmpfs rw,nosuid,nodev 0 0
10.1.1.1@o2ib:10.1.1.2@o2ib:/fs1 /scratch lustre rw,flock,lazystatfs 0 0
nas:/export/home /home nfs4 rw,vers=4.2,proto=tcp 0 0
/dev/sdb1 /mnt/my\\040disk xfs rw 0 0
/dev/nvme0n1p1 /scratch/local ext4 rw 0 0
tmpfs /scratch/local tmpfs rw 0 0
"""
GOOD = {"kind": "lustre", "free_bytes": 400 * GIB, "free_files": 10**8, "write": 900e6, "read": 2e9}


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Bench:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HPC_DATA", str(tmp_path / "data"))
    return Bench(Options(), exchange=None, patience=1.0)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "overlay"),
        ("/home/me/study", "nfs4"),
        ("/scratch/study", "lustre"),
        ("/scratch/local/x", "tmpfs"),  # mounted over the other
        ("/scratchy", "overlay"),  # a longer name is no folder inside
        ("/mnt/my disk/x", "xfs"),
    ],
)
def test_the_innermost_mount_tells_the_kind(folder, kind) -> None:
    assert filesystem.kind(Path(folder), MOUNTS) == kind


def test_an_unreadable_list_of_mounts_tells_nothing() -> None:
    assert filesystem.kind(Path("/"), "") is None


def test_a_real_folder_is_written_and_read_and_left_as_it_was(bench) -> None:
    facts = storage.look_results(bench)
    assert facts["write"] > 0
    assert facts["read"] > 0
    assert facts["free_bytes"] > 0
    assert facts["kind"]
    assert list((Path(os.environ["HPC_RESULTS"])).iterdir()) == []


def test_writing_keeps_to_its_time(tmp_path) -> None:
    filesystem.speed(tmp_path, seconds=0.0)
    assert (tmp_path / "speed").stat().st_size <= filesystem.CHUNK


@pytest.mark.parametrize(
    ("facts", "verdict", "says", "fix"),
    [
        ({}, Verdict.PASS, "lustre, 400.0 GiB and 100.0 million files free; write 900 MB/s", ""),
        ({"free_files": None, "kind": "btrfs"}, Verdict.PASS, "btrfs, 400.0 GiB free", ""),
        ({"kind": "overlay"}, Verdict.PASS, "overlay", ""),
        ({"kind": "tmpfs"}, Verdict.FAIL, "gone with the job", "HPC_RESULTS"),
        ({"free_bytes": 12 * 2**20}, Verdict.FAIL, "0.0 GiB", "make room"),
        ({"free_files": 12}, Verdict.FAIL, "12 files", "df -i"),
        ({"write": 3e6}, Verdict.FAIL, "write 3 MB/s", "HPC_RESULTS"),
        ({"error": "Read-only file system"}, Verdict.FAIL, "Read-only file system", "HPC_RESULTS"),
    ],
)
def test_the_results_folder(facts, verdict, says, fix) -> None:
    found = storage.judge_results(GOOD | facts)
    assert found.verdict is verdict
    assert says in found.measured
    assert fix in found.fix


def test_a_data_set_is_read(bench, tmp_path) -> None:
    assert storage.judge_data(storage.look_data(bench)).verdict is Verdict.NOT_APPLICABLE
    (tmp_path / "data/cifar10").mkdir(parents=True)
    (tmp_path / "data/cifar10/images.npy").write_bytes(bytes(4 * 2**20))
    facts = storage.look_data(bench)
    assert facts["bytes"] == 4 * 2**20
    assert storage.judge_data(facts | {"read": 1e9}).verdict is Verdict.PASS
    slow = storage.judge_data(facts | {"read": 1e6})
    assert slow.verdict is Verdict.FAIL
    assert "node_local" in slow.fix
    assert storage.judge_data(facts | {"read": 1e6, "bytes": 2**10}).verdict is Verdict.PASS


def test_hard_links_work_here(bench) -> None:
    assert storage.judge_links(storage.look_links(bench)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("link", "says"),
    [
        # exFAT, some FUSE and object stores: link(2), ERRORS, EPERM
        ("refused", os.strerror(errno.EPERM)),
        ("copies", "a link is a copy"),
        ("overwrites", "a second claim on one name succeeds"),
    ],
)
def test_file_systems_without_true_links_fail(bench, monkeypatch, link, says) -> None:
    real = os.link

    def false(first: Path, second: Path) -> None:
        if link == "refused":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        if link == "copies":
            with open(second, "x") as file:
                file.write(first.read_text())
        if link == "overwrites":
            second.unlink(missing_ok=True)
            real(first, second)

    monkeypatch.setattr(os, "link", false)
    found = storage.judge_links(storage.look_links(bench))
    assert found.verdict is Verdict.FAIL
    assert says in found.measured
    assert "HPC_RESULTS" in found.fix


def pair(tmp_path: Path, patience: float = 5.0) -> list[Bench]:
    """Two ranks of two nodes that share a store; they find the results where HPC_RESULTS is when they look."""
    store = dist.HashStore()
    both = [Exchange(store, rank) for rank in range(2)]
    return [Bench(Options(), both[rank], rank=rank, world=2, patience=patience) for rank in range(2)]


def look_shared(first: Bench, second: Bench) -> list[dict]:
    facts: list[dict] = [{}, {}]
    other = threading.Thread(target=lambda: facts.__setitem__(1, storage.look_shared(second)))
    other.start()
    facts[0] = storage.look_shared(first)
    other.join()
    return facts


def test_a_file_is_seen_by_the_other_node(bench, tmp_path) -> None:
    found = storage.judge_shared(seen(*look_shared(*pair(tmp_path))))
    assert found.verdict is Verdict.PASS
    assert "seen by 2 nodes" in found.measured


def test_a_file_that_the_other_node_does_not_see(bench, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(storage, "_appears", lambda path, seconds: None)
    found = storage.judge_shared(seen(*look_shared(*pair(tmp_path))))
    assert (found.verdict, found.where) == (Verdict.FAIL, "node1 rank 1")
    assert storage._appears is not None


def test_waiting_for_a_file_ends(tmp_path) -> None:
    assert storage._appears(tmp_path / "never", 0.2) is None
    (tmp_path / "here").touch()
    assert storage._appears(tmp_path / "here", 0.2) is not None


def test_results_that_cannot_be_written_cannot_be_shared(bench, tmp_path) -> None:
    (tmp_path / "results").write_text("not a folder")
    found = storage.judge_shared(seen(*look_shared(*pair(tmp_path))))
    assert found.verdict is Verdict.UNKNOWN
    assert storage.judge_shared(seen({"nodes": 1})).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("mount", "says", "links"),
    [
        ("mount -t tmpfs -o size=12m tmpfs {}", "tmpfs, 0.0 GiB", True),
        ("mount --bind {0} {0} && mount -o remount,bind,ro {0}", "Read-only file system", False),
    ],
)
def test_real_file_systems_that_are_small_or_read_only(tmp_path, namespaces, mount, says, links) -> None:
    """In mounts of its own, which end with the process."""
    results = tmp_path / "results"
    results.mkdir()
    code = """
        from hpc_utils.probe import storage
        from hpc_utils.probe.bench import Bench, Options
        bench = Bench(Options(), exchange=None, patience=1.0)
        folder = storage.judge_results(storage.look_results(bench))
        for check in folder, storage.judge_links(storage.look_links(bench)):
            print(check.verdict, check.measured, sep="|")
    """
    script = f"{mount.format(results)} && exec {sys.executable} -c '{code.replace(chr(10) + ' ' * 8, chr(10))}'"
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        env=os.environ | {"HPC_RESULTS": str(results)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    folder, hard = done.stdout.splitlines()
    assert folder.startswith("fail|")
    assert says in folder
    assert hard.startswith("pass|" if links else "fail|")
