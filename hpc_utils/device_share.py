"""A share of a core as a device: the kernel's CPU bandwidth control holds a process to it.

    with Share(0.14, period=0.01).held():    # 1.4 ms of every 10 ms, all threads of this process together
        ...

Linux alone; in a control group of this process's own, which root, a delegated subtree, or the user's systemd can give
(https://docs.kernel.org/scheduler/sched-bwc.html).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpc_utils.provenance import cgroup

_PREFIX = "hpc-share-"
_NEEDS = (
    "shares of a core need control groups for processor time: Linux, and root (in a container, cgroups that can be written), a "
    "delegated subtree (`systemd-run -p Delegate=yes`), or a session with a systemd of the user's own that takes a CPUQuota"
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
            self._by_systemd()
            yield  # the scope ends with this process
            return
        own = next(cgroup.groups())
        _enter(made)
        try:
            yield
        finally:
            _enter(own)
            _remove(made)  # unless a child of this process is still in it

    def _group(self) -> Path | None:
        """A new group with this quota: below this process's own, or as near above as one may be made."""
        quota, period = round(self.cores * self.period * 1e6), round(self.period * 1e6)
        for group in cgroup.groups():
            for left in group.glob(f"{_PREFIX}*"):
                with contextlib.suppress(OSError):  # another rank was faster
                    if time.time() - left.stat().st_mtime > _LEFT_BEHIND:
                        left.rmdir()
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

    def _by_systemd(self) -> None:
        """Move this process to a scope of the user's systemd, as `systemd-run --user --scope` starts one."""
        quota, period = round(self.cores * 1e6), round(self.period * 1e6)  # us a second; us
        name = f"{_PREFIX}{time.time_ns():x}-{os.getpid()}.scope"
        command = [
            "busctl", "--user", "--quiet", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
            "org.freedesktop.systemd1.Manager", "StartTransientUnit", "ssa(sv)a(sa(sv))", name, "fail",
            "3", "PIDs", "au", "1", str(os.getpid()), "CPUQuotaPerSecUSec", "t", str(quota),
            "CPUQuotaPeriodUSec", "t", str(period), "0",
        ]  # fmt: skip
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            raise NoShare(_NEEDS) from None
        deadline = time.monotonic() + 10
        while not any(group.name == name for group in cgroup.groups()):  # the move is a job of systemd's
            if time.monotonic() > deadline:
                raise NoShare(f"the user's systemd did not move this process to {name} within 10 s")
            time.sleep(0.01)


def throttled() -> float:
    """Seconds so far that this process's own group had work, and had used up its quota."""
    for file in itertools.islice(cgroup.files("cpu.stat"), 1):
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in ("throttled_usec", "throttled_time"):  # version 2; version 1, in ns
                return int(value) / (1e6 if name == "throttled_usec" else 1e9)
    return 0.0


@functools.cache
def unavailable() -> str:
    """Why no process here can be held to a share, and what would give it; "" if one can."""
    if made := Share(0.5, 0.01)._group():
        _remove(made)
        return ""
    try:
        command = ["busctl", "--user", "--quiet", "status", "org.freedesktop.systemd1"]
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return _NEEDS
    return ""


def _enter(group: Path) -> None:
    (group / "cgroup.procs").write_text("0")  # whoever writes it


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):
        group.rmdir()
