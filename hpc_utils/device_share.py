"""A share of a core as a device, enforced by the kernel's CPU bandwidth control.

    with Share(0.14, period=0.01).held():    # 1.4 ms of every 10 ms, all threads of this process together
        ...

Linux only. It needs a control group for this process, from root, a delegated subtree, or the user's systemd
(https://docs.kernel.org/scheduler/sched-bwc.html).
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpc_utils.provenance import cgroup

_PREFIX = "hpc-share-"
_NEEDS = (
    "shares of a core need CPU control groups: Linux, and root (in a container, writable cgroups), a delegated subtree, or a "
    "user's systemd with the cpu controller delegated (`Delegate=cpu` of user@.service)"
)
_LEFT_BEHIND = 60.0  # s: an older empty group was left by a killed process


class NoShare(RuntimeError):
    """This process cannot be limited to a share of a core."""


@dataclass(frozen=True)
class Share:
    """`cores * period` seconds of CPU time in each `period` (s)."""

    cores: float
    period: float

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Limit this process, its threads, its loader workers and later children to the share in the block.

        Raises:
            NoShare: this is not possible on this machine.
        """
        group = self._group()
        if group is None:
            scope = self._by_systemd()
            try:
                yield
            finally:  # the scope itself exists until this process ends
                _systemd(
                    "SetUnitProperties", "sba(sv)", scope, "true", "1", "CPUQuotaPerSecUSec", "t", str(2**64 - 1)
                )
            return
        former_group = next(cgroup.groups())
        _enter(group)
        try:
            yield
        finally:
            _enter(former_group)
            _remove(group)  # unless a child of this process is still in it

    def _group(self) -> Path | None:
        """Create a group with this quota, below this process's group or its nearest possible ancestor.

        In version 2 a group with processes does not pass controllers on, so the group above must; in a delegated subtree,
        or as root, it can be configured to.
        """
        quota, period = round(self.cores * self.period * 1e6), round(self.period * 1e6)
        for group in cgroup.groups():
            for left in group.glob(f"{_PREFIX}*"):
                with contextlib.suppress(OSError):  # another rank may have removed it
                    if time.time() - left.stat().st_mtime > _LEFT_BEHIND:
                        left.rmdir()
            with contextlib.suppress(OSError):
                if "cpu" not in (group / "cgroup.subtree_control").read_text().split():
                    (group / "cgroup.subtree_control").write_text("+cpu")
            child = group / f"{_PREFIX}{time.time_ns():x}-{os.getpid()}"
            if not os.access(group / "cgroup.procs", os.W_OK):
                continue
            try:
                child.mkdir()
            except OSError:
                continue
            try:
                if (child / "cpu.cfs_quota_us").exists():
                    (child / "cpu.cfs_period_us").write_text(str(period))
                    (child / "cpu.cfs_quota_us").write_text(str(quota))
                else:  # absent if the group above does not pass its controller on
                    with (child / "cpu.max").open("r+") as file:
                        file.write(f"{quota} {period}")
            except OSError:
                _remove(child)
                continue
            return child
        return None

    def _by_systemd(self) -> str:
        """Move this process to a new scope of the user's systemd, as `systemd-run --user --scope` does; returns its name."""
        quota, period = round(self.cores * 1e6), round(self.period * 1e6)  # us a second; us
        name = f"{_PREFIX}{time.time_ns():x}-{os.getpid()}.scope"
        members = _members()
        properties = ["PIDs", "au", str(len(members)), *members, "CPUQuotaPerSecUSec", "t", str(quota)]
        properties += ["CPUQuotaPeriodUSec", "t", str(period)]
        _systemd("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "3", *properties, "0")
        deadline = time.monotonic() + 10
        while not any(group.name == name for group in cgroup.groups()):  # systemd moves it asynchronously
            if time.monotonic() > deadline:
                raise NoShare(f"the user's systemd did not move this process to {name} within 10 s")
            time.sleep(0.01)
        limit = next(cgroup.files("cpu.max"), None)  # without the controller, systemd ignores the quota silently
        if limit is None or limit.parent.name != name or limit.read_text().startswith("max"):
            raise NoShare(_NEEDS)
        return name


def _systemd(method: str, *arguments: str) -> None:
    """Call the user's systemd. Raises NoShare if there is none or the call fails."""
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    command = ["busctl", "--user", "--quiet", "call", *manager, method, *arguments]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        raise NoShare(_NEEDS) from None


def throttled() -> float:
    """Seconds that this process's group was throttled so far."""
    units = {"throttled_usec": 1e6, "throttled_time": 1e9}  # cgroup version 2, version 1
    for line in next(cgroup.files("cpu.stat")).read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in units:
            return int(value) / units[name]
    return 0.0


@functools.cache
def unavailable() -> str:
    """Why shares are not available on this machine, with the requirements; "" if they are."""
    if group := Share(0.5, 0.01)._group():
        _remove(group)
        return ""
    controllers = Path(
        f"/sys/fs/cgroup/user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service/cgroup.controllers"
    )
    with contextlib.suppress(OSError):
        if "cpu" in controllers.read_text().split() and shutil.which("busctl"):
            return ""
    return _NEEDS


def _enter(group: Path) -> None:
    for member in _members():
        (group / "cgroup.procs").write_text(member)


def _members() -> list[str]:
    """This process and its workers, which a loader may have started before."""
    return [str(os.getpid()), *(str(worker.pid) for worker in multiprocessing.active_children())]


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):
        group.rmdir()
