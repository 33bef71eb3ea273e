"""A share of a core as a device: held by the kernel, given back, found without torch."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from hpc_utils import device_share
from hpc_utils.device_share import NoShare, Share
from hpc_utils.provenance import cgroup

real = pytest.mark.skipif(bool(device_share.unavailable()), reason=device_share.unavailable())


def spin(seconds: float) -> float:
    """Processor time that this thread got in `seconds`."""
    begun, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - begun < seconds:
        pass
    return time.thread_time() - used


def spin_until_throttled(seconds: float) -> None:
    """On a busy machine a thread may get less than its share for a while."""
    until = time.monotonic() + 60
    while device_share.throttled() <= seconds and time.monotonic() < until:
        pass


@real
def test_the_kernel_holds_all_threads_to_the_share_and_lets_go() -> None:
    own = next(cgroup.groups())
    with Share(0.2, 0.01).held():
        group = next(cgroup.groups())
        begun, used = time.perf_counter(), time.process_time()
        threads = [threading.Thread(target=spin_until_throttled, args=(0.5,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert device_share.throttled() > 0.5
        assert 0.05 < time.process_time() - used < 0.3 * (time.perf_counter() - begun)
    assert next(cgroup.groups()) == own and not group.exists()
    assert any(spin(0.1) > 0.03 for _ in range(50)), "the share in 0.1 s is 0.02 s"


@real
def test_workers_that_run_already_are_held_too() -> None:
    worker = multiprocessing.Process(target=time.sleep, args=(60,))
    worker.start()
    with Share(0.2, 0.01).held():
        assert str(worker.pid) in (next(cgroup.groups()) / "cgroup.procs").read_text().split()
    worker.kill()
    worker.join()


@real
def test_a_killed_process_leaves_a_group_that_the_next_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    own = next(cgroup.groups())
    dead = own / "hpc-share-0-0"
    dead.mkdir()
    with Share(0.5, 0.01).held():
        assert dead.exists(), "it may be one that is just being entered"
    monkeypatch.setattr(device_share, "_LEFT_BEHIND", 0.0)
    with Share(0.5, 0.01).held():
        assert not dead.exists()


def fake(machine: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(content)
    return machine


@pytest.mark.parametrize(
    ("groups", "path", "counters"),
    [
        ("0::/a\n", "a/cpu.stat", "throttled_usec 1500000\n"),
        ("1:cpu:/a\n", "cpu/a/cpu.stat", "nr_throttled 3\nthrottled_time 1500000000\n"),
    ],
)
def test_throttled_time_is_read_of_both_versions(
    tmp_path: Path, monkeypatch, groups: str, path: str, counters: str
) -> None:
    machine = fake(tmp_path, {"proc/self/cgroup": groups, f"sys/fs/cgroup/{path}": counters})
    monkeypatch.setattr(cgroup.files, "__defaults__", (machine,))
    assert device_share.throttled() == 1.5


def test_where_no_group_can_be_had_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No controller is handed down, and no systemd answers."""
    machine = fake(tmp_path, {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cgroup.procs": ""})
    monkeypatch.setattr(cgroup.groups, "__defaults__", (machine,))
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert "root" in device_share.unavailable.__wrapped__()
    with pytest.raises(NoShare, match="root"), Share(0.5, 0.01).held():
        pass
    assert list((machine / "sys/fs/cgroup/a").glob("hpc-share-*")) == []


def test_the_users_systemd_is_asked_for_a_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(cgroup.groups, "__defaults__", (tmp_path,))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    monkeypatch.setattr(device_share.time, "monotonic", iter([0.0, 11.0]).__next__)
    with pytest.raises(NoShare, match="within 10 s"), Share(0.14, 0.01).held():
        pass
    assert asked[0][asked[0].index("CPUQuotaPerSecUSec") + 2] == "140000"
    assert asked[0][asked[0].index("CPUQuotaPeriodUSec") + 2] == "10000"
