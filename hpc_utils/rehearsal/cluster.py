"""Start, find, use and end a rehearsal cluster."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_utils import workspace
from hpc_utils.plural import counted

from . import daemons, host, network, plan, processes
from . import folder as folders
from .host import ClusterError, KilledError
from .plan import Plan

PATIENCE = 15.0  # seconds that a keeper gets to end by itself; it takes a fraction of one
SIZES = {"nodes": (1, 64), "cpus": (1, 256), "gpus": (0, 16), "share": (0.01, 0.99)}
Progress = Callable[[str, float], None]
# Keepers that this process started, by folder: each is a child to be waited for when it ends.
_children: dict[Path, subprocess.Popen[bytes]] = {}


class _Failed(ClusterError):
    """The keeper's error; its logs stay for the reader."""


@dataclass(frozen=True)
class Status:
    """nodes: Slurm's state of each, or "no power". daemons: whether each runs. rate: of the nodes' links, or None.
    held: the runs that measure over them now."""

    nodes: dict[str, str]
    daemons: dict[str, bool]
    rate: str | None
    held: list[str]


class Cluster(Plan):
    """A cluster that is up."""

    def environment(self) -> dict[str, str]:
        """The variables that Slurm's commands need to reach it: `os.environ | cluster.environment()`."""
        return {"SLURM_CONF": str(self.conf)}

    def address(self, node: str) -> str:
        """The node's address, which this machine reaches; 127.0.0.1 if the cluster is flat."""
        return self.nodes[node].address

    def status(self) -> Status:
        """The cluster's present state."""
        answer = self._ask("status")
        states = daemons.node_states(self)
        nodes = {name: states.get(name, "unknown") if on else "no power" for name, on in answer["power"].items()}
        return Status(nodes, answer["daemons"], answer["rate"], answer["held"])

    @property
    def by_hand(self) -> str | None:
        """The nodes' links' limit, as `1gbit`, without the one that a run has set for its measurement; None without."""
        return self._ask("status")["by_hand"]

    def kill_node(self, name: str) -> None:
        """A power cut: everything on the node is gone at once; Slurm notices within some 15 s."""
        self._ask("kill", node=name)

    def revive_node(self, name: str) -> None:
        """Give the node power again; returns when Slurm calls it ready.

        If Slurm had not noticed the cut, it finds out within a minute that the node's jobs are gone.
        """
        self._ask("revive", node=name)

    def shape(self, rate: str | None) -> None:
        """Limit the bandwidth of every node's link, in each direction, as `1gbit`; None lifts the limit."""
        self._require_links(rate)
        self._ask("shape", rate=rate)

    @contextmanager
    def holding(self, rate: str | None, by: str) -> Iterator[None]:
        """The links limited to `rate` while the block runs; no other process can change them meanwhile.

        Afterwards they are as before, also if this process is killed. `by`: the run that measures.

        Raises:
            ClusterError: another run measures now over links of another rate.
        """
        self._require_links(rate)
        with socket.socket(socket.AF_UNIX) as connection:
            self._ask("hold", over=connection, rate=rate, by=by)
            yield

    def down(self) -> list[str]:
        """End it and remove all of it; the names of what ended."""
        return down(self.name)

    def _require_links(self, rate: str | None) -> None:
        if self.flat:
            raise ClusterError(f"cluster {self.name} is flat: its nodes have no links to shape (links need root)")
        if rate is not None and not network.RATE.fullmatch(rate):
            raise ClusterError(f"rate {rate!r}: a number with its unit, as 100mbit or 2.5gbit; kbit, mbit, gbit")

    def _ask(self, what: str, **fields: Any) -> dict:
        try:
            answer = _ask(self.folder, what, **fields)
        except (FileNotFoundError, ConnectionError):
            raise ClusterError(f"cluster {self.name} is not up any more") from None
        if "error" in answer:
            raise ClusterError(f"cluster {self.name}: {answer['error']}")
        return answer


def up(
    name: str = "rehearsal",
    *,
    nodes: int = 2,
    cpus: int = 8,
    gpus: int = 4,
    share: float | None = None,
    flat: bool | None = None,
    lasting: bool = True,
    progress: Progress = lambda step, seconds: None,
) -> Cluster:
    """Start a cluster, unless it is up with this size, and return when its nodes are idle; whatever interrupts this call, nothing
    but logs is left then.

    Args:
        nodes: how many, each with an equal share of this machine's physical cores.
        cpus, gpus: what each node claims to Slurm; the GPUs are stand-ins.
        share: of a core, that each node's one device is; None: whole cores, one rank each. Ranks are held to it, Slurm's
            daemons and the ranks' imports are not.
        flat: all nodes on this host, without namespaces. None: only where those cannot be had (they need root).
        lasting: it outlives this process. If not, it ends with it, however that ends.
        progress: called after each step with its name and the seconds since the start.
    """
    size = {"nodes": nodes, "cpus": cpus, "gpus": gpus, "share": share}
    for what, (low, high) in SIZES.items():
        if size[what] is not None and not low <= size[what] <= high:
            raise ClusterError(f"{what}={size[what]:g}: from {low} to {high} are possible")
    folder = folders.of(name)
    if flat is None:
        flat = not host.has_namespaces()
    host.require(flat=flat)
    with suppress(KilledError):  # then its remaining files are removed
        if running := find_cluster(name):
            if (len(running.nodes), running.cpus, running.gpus, running.share) == (nodes, cpus, gpus, share):
                return running
            raise ClusterError(
                f"cluster {name} is up already, with {counted(len(running.nodes), 'node')}; {_end_it(name)} ends it"
            )
    folders.claim(folder)
    _collect(folder)  # one that another process has ended
    network.unplug(folder)  # of one that was killed
    keeper = None
    try:
        keeper = _start_keeper(folder, flat)
        folders.give(folder, keeper.pid)
        _expect("born", keeper, folder, progress)
        subnet = None if flat else network.claim(folder, keeper.pid)
        plan.draw(folder, subnet=subnet, **size).save()
        _tell(keeper, "planned")
        _expect("up", keeper, folder, progress)
        if lasting:
            _tell(keeper, "keep")
            keeper.stdin.close()
    except BaseException as error:
        if keeper is not None:
            _end_keeper(keeper)
        network.unplug(folder)
        if not isinstance(error, _Failed):
            folders.remove(folder)
        raise
    keeper.stdout.close()
    _children[folder] = keeper
    return Cluster.load(folder)


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
    raise _Failed(f"the cluster's keeper ended; the end of {host.tail(folder / 'log' / 'keeper.out')}")


def _end_keeper(keeper: subprocess.Popen[bytes]) -> None:
    """End the keeper by closing its standard input; by force after 10 s."""
    with suppress(BrokenPipeError):
        keeper.stdin.close()
    keeper.stdout.close()
    try:
        keeper.wait(10)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()


def _collect(folder: Path) -> None:
    """Wait for the keeper of `folder`, which ends or has ended, if it is this process's child."""
    if (keeper := _children.pop(folder, None)) is not None:
        keeper.stdin.close()
        keeper.wait()


def find_cluster(name: str = "rehearsal") -> Cluster | None:
    """The cluster `name`; None if it is not up.

    Raises:
        KilledError: it was killed, and its remains are not removed yet.
        ClusterError: some of its daemons have ended, or it is being started or ended.
    """
    folder = folders.of(name)
    owner = folders.living_owner(folder)
    if owner is None:
        if (folder / "owner").exists():
            raise KilledError(f"cluster {name} was killed; {_end_it(name)} clears what it left in {folder}")
        return None
    try:
        daemons = _ask(folder, "status")["daemons"]
    except (OSError, ValueError):
        raise ClusterError(f"cluster {name} is being started or ended by process {owner.pid}") from None
    if dead := [daemon for daemon, alive in daemons.items() if not alive]:
        lost = f"has lost {', '.join(dead)} (logs in {folder / 'log'})"
        raise ClusterError(f"cluster {name} {lost}; {_end_it(name)} ends it")
    return Cluster.load(folder)


def around() -> Cluster | None:
    """The cluster that this process's SLURM_CONF belongs to; None if that is no rehearsal's, or it is not up.

    On a node too, where the keeper's process is out of sight but its socket is not.
    """
    folder = Path(workspace.environment().get("SLURM_CONF") or "/").parent.parent
    return Cluster.load(folder) if (folder / "control").is_socket() else None


def down(name: str = "rehearsal") -> list[str]:
    """End the cluster `name` and remove all of it, also what a killed one left; the names of what there was."""
    folder = folders.of(name)
    ended = _end(folder)
    _collect(folder)
    ended += network.unplug(folder)
    if folder.exists():
        ended.append(str(folder))
    folders.remove(folder)
    return ended


def _end(folder: Path) -> list[str]:
    """Ask the keeper to end, and insist; what was running."""
    if (owner := folders.living_owner(folder)) is None:
        return []
    ended = ["the start of a cluster"]
    with suppress(OSError, ValueError):
        running = _ask(folder, "status", timeout=2.0)
        ended = [name for name, on in (running["power"] | running["daemons"]).items() if on]
    deadline = time.monotonic() + PATIENCE
    while processes.alive(owner):
        with suppress(OSError, ValueError):
            _ask(folder, "end", timeout=2.0)
        if time.monotonic() > deadline:
            processes.kill(owner)
        time.sleep(0.02)
    return ended


def _end_it(name: str) -> str:
    return "`hpc cluster down`" if name == "rehearsal" else f"`hpc cluster down --name {name}`"


def _ask(
    folder: Path, what: str, timeout: float = 90.0, over: socket.socket | None = None, **fields: str | None
) -> dict:
    """One request to the keeper, `over` a connection that stays open, or one of its own.

    Raises:
        OSError, ValueError: it does not answer.
    """
    connection = over or socket.socket(socket.AF_UNIX)
    with nullcontext() if over else connection:
        connection.settimeout(timeout)
        connection.connect(str(folder / "control"))
        with connection.makefile("rw") as stream:
            stream.write(json.dumps({"what": what, **fields}) + "\n")
            stream.flush()
            return json.loads(stream.readline())
