"""A share of a core as a device: the kernel's CPU bandwidth control holds a process to it.

    with Share(0.14, period=0.01).held():    # 1.4 ms of every 10 ms, all threads of this process together
        ...

Linux alone; in a control group of this process's own, which root, a delegated subtree, or the user's systemd can give
(https://docs.kernel.org/scheduler/sched-bwc.html).
"""

from __future__ import annotations

import contextlib
import functools
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
    "shares of a core need control groups for processor time: Linux, and root (in a container, cgroups that can be written), a "
    "delegated subtree, or a systemd of the user's own to which the cpu controller is delegated (`Delegate=cpu` of user@.service)"
)
_LEFT_BEHIND = 60.0  # s: a group that old and empty is one of a killed process


class NoShare(RuntimeError):
    """This process cannot be held to a share of a core."""


@dataclass(frozen=True)
class Share:
    """`cores * period` seconds of processor time in every `period` of seconds."""

    cores: float
    period: float

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold this process, all its threads and those that it starts, to the share until the block ends.

        Raises:
            NoShare: it cannot be had here.
        """
        made = self._group()
        if made is None:
            scope = self._by_systemd()
            try:
                yield
            finally:  # of the scope itself only this process's end frees it
                _systemd(
                    "SetUnitProperties", "sba(sv)", scope, "true", "1", "CPUQuotaPerSecUSec", "t", str(2**64 - 1)
                )
            return
        own = next(cgroup.groups())
        _enter(made)
        try:
            yield
        finally:
            _enter(own)
            _remove(made)  # unless a child of this process is still in it

    def _group(self) -> Path | None:
        """A new group with this quota: below this process's own, or as near above as one may be made.

        In version 2 a group with processes hands no controller down, so that it is the group above that must, or may be
        told to: in a delegated subtree, or as root.
        """
        quota, period = round(self.cores * self.period * 1e6), round(self.period * 1e6)
        for group in cgroup.groups():
            for left in group.glob(f"{_PREFIX}*"):
                with contextlib.suppress(OSError):  # another rank was faster
                    if time.time() - left.stat().st_mtime > _LEFT_BEHIND:
                        left.rmdir()
            with contextlib.suppress(OSError):
                if "cpu" not in (group / "cgroup.subtree_control").read_text().split():
                    (group / "cgroup.subtree_control").write_text("+cpu")
            made = group / f"{_PREFIX}{time.time_ns():x}-{os.getpid()}"
            if not os.access(group / "cgroup.procs", os.W_OK):
                continue
            try:
                made.mkdir()
            except OSError:
                continue
            try:
                if (made / "cpu.cfs_quota_us").exists():
                    (made / "cpu.cfs_period_us").write_text(str(period))
                    (made / "cpu.cfs_quota_us").write_text(str(quota))
                else:  # absent where the group above does not hand its controller down
                    with (made / "cpu.max").open("r+") as file:
                        file.write(f"{quota} {period}")
            except OSError:
                _remove(made)
                continue
            return made
        return None

    def _by_systemd(self) -> str:
        """Move this process to a scope of the user's systemd, as `systemd-run --user --scope` starts one; its name."""
        quota, period = round(self.cores * 1e6), round(self.period * 1e6)  # us a second; us
        name = f"{_PREFIX}{time.time_ns():x}-{os.getpid()}.scope"
        properties = ["PIDs", "au", "1", str(os.getpid()), "CPUQuotaPerSecUSec", "t", str(quota)]
        properties += ["CPUQuotaPeriodUSec", "t", str(period)]
        _systemd("StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail", "3", *properties, "0")
        deadline = time.monotonic() + 10
        while not any(group.name == name for group in cgroup.groups()):  # the move is a job of systemd's
            if time.monotonic() > deadline:
                raise NoShare(f"the user's systemd did not move this process to {name} within 10 s")
            time.sleep(0.01)
        limit = next(cgroup.files("cpu.max"), None)  # without the controller systemd takes the quota, and forgets it
        if limit is None or limit.parent.name != name or limit.read_text().startswith("max"):
            raise NoShare(_NEEDS)
        return name


def _systemd(method: str, *arguments: str) -> None:
    """Call the user's systemd; NoShare if there is none, or it refuses."""
    manager = ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"]
    command = ["busctl", "--user", "--quiet", "call", *manager, method, *arguments]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        raise NoShare(_NEEDS) from None


def throttled() -> float:
    """Seconds so far that this process's own group had work, and had used up its quota."""
    units = {"throttled_usec": 1e6, "throttled_time": 1e9}  # of version 2, and of version 1
    for line in next(cgroup.files("cpu.stat")).read_text().splitlines():
        name, _, value = line.partition(" ")
        if name in units:
            return int(value) / units[name]
    return 0.0


@functools.cache
def unavailable() -> str:
    """Why no process here can be held to a share, and what would give it; "" if one can."""
    if made := Share(0.5, 0.01)._group():
        _remove(made)
        return ""
    controllers = Path(
        f"/sys/fs/cgroup/user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service/cgroup.controllers"
    )
    with contextlib.suppress(OSError):
        if "cpu" in controllers.read_text().split() and shutil.which("busctl"):
            return ""
    return _NEEDS


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")  # whoever writes it


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):
        group.rmdir()
