"""How `up` starts a cluster: claims its folder, starts its keeper and waits until the keeper reports that it is up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import folder as folders
from . import host, network
from .host import ClusterError, tail
from .plan import Plan, draw

Progress = Callable[[str, float], None]
# Keepers that this process started, by folder: each is a child to be waited for when it ends.
_children: dict[Path, subprocess.Popen[bytes]] = {}


class _Failed(ClusterError):
    """The keeper's error; its logs stay for the reader."""


def boot(folder: Path, *, flat: bool, lasting: bool, progress: Progress, **size: Any) -> Plan:
    """Start the cluster in `folder`; on any error, and on any end of this process, nothing but logs is left.

    `size`: `plan.draw`'s nodes, cpus, gpus and share.
    """
    folders.claim(folder)
    collect(folder)  # one that another process has ended
    network.unplug(folder)  # of one that was killed
    keeper = None
    try:
        keeper = _start_keeper(folder, flat)
        folders.give(folder, keeper.pid)
        _expect("born", keeper, folder, progress)
        subnet = None if flat else network.claim(folder, keeper.pid)
        plan = draw(folder, subnet=subnet, **size)
        plan.save()
        _tell(keeper, "planned")
        _expect("up", keeper, folder, progress)
        if lasting:
            _tell(keeper, "keep")
            keeper.stdin.close()
    except BaseException as error:
        if keeper is not None:
            _end(keeper)
        if not flat:
            network.unplug(folder)
        if not isinstance(error, _Failed):
            folders.remove(folder)
        raise
    keeper.stdout.close()
    _children[folder] = keeper
    return plan


def collect(folder: Path) -> None:
    """Wait for the keeper of `folder`, which ends or has ended, if it is this process's child."""
    if (keeper := _children.pop(folder, None)) is not None:
        keeper.stdin.close()
        keeper.wait()


def _start_keeper(folder: Path, flat: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", f"{__package__}.keeper", str(folder)]
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places)), "PATH": host.path()}
    (folder / "log").mkdir()
    with (folder / "log" / "keeper.out").open("wb") as log:
        return subprocess.Popen(
            command if flat else [*host.UNSHARE, *command],
            env=environment, cwd="/", start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip


def _tell(keeper: subprocess.Popen[bytes], line: str) -> None:
    with suppress(BrokenPipeError):  # then `_expect` raises the reason
        keeper.stdin.write(f"{line}\n".encode())
        keeper.stdin.flush()


def _expect(what: str, keeper: subprocess.Popen[bytes], folder: Path, progress: Progress) -> None:
    """Pass steps on to `progress` until the keeper reports `what`."""
    for line in keeper.stdout:
        event = json.loads(line)
        if "failed" in event:
            raise _Failed(event["failed"])
        if what in event:
            return
        progress(event["step"], event["seconds"])
    raise _Failed(f"the cluster's keeper ended; the end of {tail(folder / 'log' / 'keeper.log')}")


def _end(keeper: subprocess.Popen[bytes]) -> None:
    """End the keeper by closing its standard input; by force after 10 s."""
    with suppress(BrokenPipeError):
        keeper.stdin.close()
    keeper.stdout.close()
    try:
        keeper.wait(10)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()
