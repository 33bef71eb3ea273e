"""Start, find, use and end a rehearsal cluster."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import workspace

from . import boot, namespaces, network, programs
from . import folder as folders
from .errors import ClusterError, KilledError
from .plan import Plan
from .process import Process

PATIENCE = 15.0  # seconds that a keeper gets to end by itself; it takes a fraction of one


@dataclass(frozen=True)
class Status:
    """nodes: Slurm's state of each, or "no power". daemons: whether each runs. rate: of the nodes' links, or None.
    held: what is measured over them now."""

    nodes: dict[str, str]
    daemons: dict[str, bool]
    rate: str | None
    held: list[str]


class Cluster:
    """A cluster that is up.

    Attributes:
        name, folder: what it is called and where it keeps its state. conf: its slurm.conf.
        nodes: their names. flat: they share this host's name and address.
        share: of a core, that each node's device is; None: whole cores. oversubscribed: they want more cores than there
            are, so that timings mean nothing.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.name = plan.name
        self.folder = plan.folder
        self.conf = plan.conf
        self.nodes = [node.name for node in plan.nodes]
        self.flat = plan.flat
        self.share = plan.share
        self.oversubscribed = plan.oversubscribed

    def environment(self) -> dict[str, str]:
        """All that a process needs to talk to it: `os.environ | cluster.environment()`."""
        return {"SLURM_CONF": str(self.conf)}

    def address(self, node: str) -> str:
        """The node's address, which this machine reaches; 127.0.0.1 if the cluster is flat."""
        return self._plan.node(self._known(node)).address

    def status(self) -> Status:
        """How it is now."""
        kept = self._ask("status")
        command = ["sinfo", "--noheader", "--Node", "--format", "%N %T"]
        env = os.environ | self.environment() | {"PATH": programs.path()}
        said = subprocess.run(command, env=env, capture_output=True, text=True).stdout
        states = dict(line.split() for line in said.splitlines())
        nodes = {name: states.get(name, "unknown") if on else "no power" for name, on in kept["power"].items()}
        return Status(nodes, kept["daemons"], kept["rate"], kept["held"])

    @property
    def rate(self) -> str | None:
        """What the nodes' links are limited to now, as `1gbit`; None if they are not."""
        return self._ask("status")["rate"]

    @property
    def by_hand(self) -> str | None:
        """The same, without what a run that is measured now has them limited to."""
        return self._ask("status")["by_hand"]

    def kill_node(self, name: str) -> None:
        """A power cut: everything on the node is gone at once; Slurm notices within some 15 s."""
        if not self._has_power(name):
            raise ClusterError(f"{name} has no power")
        self._ask("kill", node=name)

    def revive_node(self, name: str) -> None:
        """Give the node power again; returns when Slurm calls it ready.

        If Slurm had not noticed the cut, it finds out within a minute that the node's jobs are gone.
        """
        if self._has_power(name):
            raise ClusterError(f"{name} has power")
        self._ask("revive", node=name)

    def shape(self, rate: str | None) -> None:
        """Limit the bandwidth of every node's link, in each direction, as `1gbit`; None lifts the limit."""
        self._require_links(rate)
        self._ask("shape", rate=rate)

    @contextmanager
    def holding(self, rate: str | None, by: str) -> Iterator[None]:
        """The links limited to `rate` while the block runs; nobody else changes them meanwhile.

        Afterwards they are as before, also if this process does not live to see it. `by`: what is measured over them.

        Raises:
            ClusterError: something else is measured now over links of another rate.
        """
        self._require_links(rate)
        with socket.socket(socket.AF_UNIX) as connection:
            self._ask("hold", connection, rate=rate, by=by)
            yield

    def down(self) -> list[str]:
        """End it and remove all of it; the names of what ended."""
        return down(self.name)

    def _known(self, node: str) -> str:
        if node not in self.nodes:
            raise ClusterError(f"cluster {self.name} has no node {node!r}: it has {', '.join(self.nodes)}")
        return node

    def _has_power(self, node: str) -> bool:
        return self._ask("status")["power"][self._known(node)]

    def _require_links(self, rate: str | None) -> None:
        if self.flat:
            raise ClusterError(f"cluster {self.name} is flat: its nodes have no links to shape (links need root)")
        if rate is not None and not network.RATE.fullmatch(rate):
            raise ClusterError(f"rate {rate!r}: a number with its unit, as 100mbit or 2.5gbit; kbit, mbit, gbit")

    def _ask(self, what: str, connection: socket.socket | None = None, **more: str | None) -> dict:
        try:
            answer = _say(connection, self.folder, what, **more) if connection else _ask(self.folder, what, **more)
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
    progress: boot.Progress = lambda step, seconds: None,
) -> Cluster:
    """Start a cluster and return when its nodes are idle; whatever interrupts this call, nothing is left then.

    Args:
        nodes: how many, each with an equal share of this machine's physical cores.
        cpus, gpus: what each node claims to Slurm; the GPUs are stand-ins.
        share: of a core, that each node's one device is; None: whole cores, one rank each. Ranks are held to it, Slurm's
            daemons and the ranks' imports are not.
        flat: all nodes on this host, without namespaces. None: only where those cannot be had (they need root).
        lasting: it outlives this process. If not, it ends with it, however that ends.
        progress: called after each step with its name and the seconds since the start.
    """
    for what, value, low, high in (("nodes", nodes, 1, 64), ("cpus", cpus, 1, 256), ("gpus", gpus, 0, 16)):
        if not low <= value <= high:
            raise ClusterError(f"{what}={value}: from {low} to {high} are possible")
    if share is not None and not 0.01 <= share < 1:
        raise ClusterError(f"share={share:g}: from 0.01 to less than 1 core a node are possible")
    folder = folders.of(name)
    if flat is not True and not namespaces.work():
        if flat is False:
            raise ClusterError("nodes with namespaces of their own need root; without, the cluster can be flat")
        flat = True
    programs.require(flat=bool(flat))
    running = None
    with suppress(KilledError):  # then what it left makes way
        running = find(name)
    if running is not None:
        raise ClusterError(f"cluster {name} is up already, with {len(running.nodes)} nodes; {_end_it(name)} ends it")
    size = {"nodes": nodes, "cpus": cpus, "gpus": gpus, "share": share}
    plan = boot.boot(folder, flat=bool(flat), lasting=lasting, progress=progress, **size)
    return Cluster(plan)


def find(name: str = "rehearsal") -> Cluster | None:
    """The cluster `name`; None if it is not up.

    Raises:
        KilledError: it was killed, and what it left still lies there.
        ClusterError: it is half dead, or on its way up or down.
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
        said = f"without {', '.join(dead)}, whose logs are in {folder / 'log'}"
        raise ClusterError(f"cluster {name} is half dead, {said}; {_end_it(name)} ends it")
    return Cluster(Plan.load(folder))


def around() -> Cluster | None:
    """The cluster that this process's SLURM_CONF belongs to; None if that is no rehearsal's, or it is not up.

    On a node too, where the keeper's process is out of sight but its socket is not.
    """
    conf = Path(workspace.environment().get("SLURM_CONF") or "/")
    folder = conf.parent.parent
    if not ((folder / "plan.json").is_file() and (folder / "control").is_socket()):
        return None
    plan = Plan.load(folder)
    return Cluster(plan) if plan.conf == conf else None


def down(name: str = "rehearsal") -> list[str]:
    """End the cluster `name` and remove all of it, also what a killed one left; the names of what there was."""
    folder = folders.of(name)
    owner = folders.living_owner(folder)
    ended = [] if owner is None else _end(folder, owner)
    boot.collect(folder)
    ended += network.unplug(folder)
    if folder.exists():
        ended.append(str(folder))
    folders.remove(folder)
    return ended


def _end(folder: Path, owner: Process) -> list[str]:
    """Ask the keeper to end, and insist; what was running."""
    ended = ["the start of a cluster"]
    with suppress(OSError, ValueError):
        running = _ask(folder, "status", timeout=2.0)
        ended = [name for name, on in (running["power"] | running["daemons"]).items() if on]
    deadline = time.monotonic() + PATIENCE
    while owner.alive:
        with suppress(OSError, ValueError):
            _ask(folder, "end", timeout=2.0)
        if time.monotonic() > deadline:
            owner.kill()
        time.sleep(0.02)
    return ended


def _end_it(name: str) -> str:
    return "`hpc cluster down`" if name == "rehearsal" else f"`hpc cluster down --name {name}`"


def _ask(folder: Path, what: str, timeout: float = 90.0, **more: str | None) -> dict:
    """One request to the keeper; OSError or ValueError if it does not answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        return _say(connection, folder, what, timeout, **more)


def _say(connection: socket.socket, folder: Path, what: str, timeout: float = 90.0, **more: str | None) -> dict:
    connection.settimeout(timeout)
    connection.connect(str(folder / "control"))
    with connection.makefile("rw") as stream:
        stream.write(json.dumps({"what": what, **more}) + "\n")
        stream.flush()
        return json.loads(stream.readline())
