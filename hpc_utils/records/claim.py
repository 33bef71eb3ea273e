"""Exclusive claims on a run, without locks, on any shared file system.

Claims are numbered files `claims/0001.json`, ...; the highest number owns the run. A claim is made with `link`, which
fails if the name exists, so that only one of several processes takes over from a dead claimant.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class ClaimedElsewhere(RuntimeError):
    """Another process holds the claim on this run."""

    exit_code = 3


def assume_alive(owner: Mapping[str, Any]) -> bool:
    """The default: a claimant on another machine is assumed to be alive."""
    return False


def claim(run: Path, is_gone: Callable[[Mapping[str, Any]], bool] = assume_alive) -> int:
    """Claim `run` for this process; return the claim's number (1 for the first attempt).

    The claim of a process that is no longer alive, or of this very job before its requeue, is taken over.

    Args:
        is_gone: whether a claimant on another machine has ended, for instance by its `job`.

    Raises:
        ClaimedElsewhere: the present claimant is alive, or on a machine whose processes are not visible.
    """
    claims = run / "claims"
    claims.mkdir(parents=True, exist_ok=True)
    me = claimant()
    while True:
        number, owner = current(run)
        mine = owner and all(owner[name] == me[name] for name in ("host", "boot", "pid", "started"))
        if owner and not mine and is_alive(owner, me, is_gone):
            raise ClaimedElsewhere(
                f"{run.name} is being run by process {owner['pid']} on {owner['host']}"
                f"{' (job ' + owner['job'] + ')' if owner['job'] else ''} since {owner['at']}; "
                f"wait for it or end it; if it has certainly ended, delete {claims}"
            )
        if _place(claims / f"{number + 1:04d}.json", me):
            return number + 1


def release(run: Path) -> None:
    """Mark the present claim of `run` as released; its file stays, as a trace."""
    number, owner = current(run)
    if owner:
        (run / "claims" / f"{number:04d}.released").touch()


def current(run: Path) -> tuple[int, dict[str, Any] | None]:
    """(number, claimant) of the newest claim; the claimant is None if there is none or it was released."""
    newest = _newest(run)
    if newest is None:
        return 0, None
    released = newest.with_suffix(".released").exists()
    return int(newest.stem), None if released else _read(newest)


def is_restarted(run: Path) -> bool:
    """Whether the last claim of `run` was made by this job before it was requeued."""
    newest = _newest(run)
    me = claimant()
    last = newest and _read(newest)
    return bool(last and me["job"] and last["job"] == me["job"] and last.get("restart", 0) < me["restart"])


def claimant() -> dict[str, Any]:
    """A description of this process that no later process with the same pid matches."""
    return {
        "host": socket.gethostname(),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "pid": os.getpid(),
        "started": started(os.getpid()),
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "restart": int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def is_alive(
    owner: dict[str, Any],
    me: dict[str, Any] | None = None,
    is_gone: Callable[[Mapping[str, Any]], bool] = assume_alive,
) -> bool:
    """Whether `owner` still works on its run, as far as `me` (this process by default) and `is_gone` know."""
    me = me or claimant()
    if owner["host"] != me["host"]:
        is_requeued = owner["job"] and owner["job"] == me["job"] and owner["restart"] < me["restart"]
        return not is_requeued and not is_gone(owner)
    return owner["boot"] == me["boot"] and owner["started"] == started(owner["pid"])


def started(pid: int) -> int | None:
    """When the process `pid` started, in clock ticks since the boot, which a step of the clock does not change; None if it has
    ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before may contain anything
    return None if state in "ZX" else int(fields[18])  # proc_pid_stat(5): the 22nd, of which three are before


def _newest(run: Path) -> Path | None:
    return max((run / "claims").glob("*.json"), default=None)


def _read(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):  # truncated by a crash: its claimant has ended
        return json.loads(path.read_text())
    return None


def _place(path: Path, content: dict[str, Any]) -> bool:
    """Create `path` with `content` in one step; False if it exists."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".claim.")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file, indent=2)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True
