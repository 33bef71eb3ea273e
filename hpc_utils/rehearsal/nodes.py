"""A cluster's nodes and the links between them, as its keeper holds them."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from . import daemons, host, network, process
from .host import ClusterError
from .plan import Plan

READY = {"idle", "mixed", "allocated", "completing"}


@dataclass(frozen=True)
class Running:
    """A started node: its outermost process, its standard output, and its standard input, whose end ends it."""

    daemon: daemons.Daemon
    output: BinaryIO
    input: BinaryIO


class Nodes:
    """The nodes that have power, by name."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rate: str | None = None
        self.running: dict[str, Running] = {}

    def power_on(self, *names: str) -> None:
        """Start nodes and return when Slurm calls them ready; on an error they have no power again."""
        try:
            for name in names:
                self.power_off(name)  # what is left of it if its slurmd ended by itself
                self.running[name] = self._spawn(name)
            if not self.plan.flat:
                for name in names:
                    self._plug(name)
            daemons.wait(lambda: self._lacks(names), *(self.running[name].daemon for name in names))
        except ClusterError:
            for name in names:
                self.power_off(name)
            raise

    def power(self) -> dict[str, bool]:
        """Which nodes have it."""
        on = {name for name, node in self.running.items() if node.daemon.process.alive}
        return {node.name: node.name in on for node in self.plan.nodes}

    def power_off(self, name: str) -> None:
        """SIGKILL everything on the node at once; its cable goes first, so that no connection is closed politely."""
        if (gone := self.running.pop(name, None)) is None:
            return
        if not self.plan.flat:
            network.cut(name, self.plan.node(name).address)
        process.kill_descendants(gone.daemon.process.pid)
        gone.daemon.process.kill()
        gone.input.close()
        gone.output.close()

    def shape(self, rate: str | None) -> None:
        """Limit every node's link, both ways, also of nodes that start later; None lifts the limit.

        All of them or none: ClusterError if one cannot be limited, and the others are then as before.
        """
        pids = {name: node.daemon.process.pid for name, node in self.running.items() if node.daemon.process.alive}
        try:
            for name, pid in pids.items():
                network.shape(name, pid, rate)
        except ClusterError:
            for name, pid in pids.items():
                with suppress(ClusterError):  # the one that could not be limited may not be reached at all
                    network.shape(name, pid, self.rate)
            raise
        self.rate = rate

    def _spawn(self, name: str) -> Running:
        command = [sys.executable, "-P", "-m", f"{__package__}.node", str(self.plan.folder), name]
        if not self.plan.flat:
            command = [*host.UNSHARE, *command]
        (stdin, own_input), (own_output, stdout) = os.pipe(), os.pipe()
        env = daemons.environment(self.plan)
        daemon = daemons.spawn(self.plan, name, command, env, stdin=stdin, stdout=stdout)
        os.close(stdin)
        os.close(stdout)
        return Running(daemon, os.fdopen(own_output, "rb"), os.fdopen(own_input, "wb", buffering=0))

    def _plug(self, name: str) -> None:
        node = self.running[name]
        daemons.wait(lambda: "" if b"born" in node.output.readline() else "no namespaces", node.daemon)
        network.plug(name, self.plan.node(name).address, node.daemon.process.pid)
        if self.rate:
            network.shape(name, node.daemon.process.pid, self.rate)
        node.input.write(b"plugged\n")

    def _lacks(self, names: tuple[str, ...]) -> str:
        """Why Slurm does not send jobs to these nodes yet; "" if it does."""
        for node in map(self.plan.node, names):
            try:
                socket.create_connection((node.address, node.port), timeout=1).close()
            except OSError as error:
                return f"{node.name} does not listen: {error}"
        states = daemons.node_states(self.plan)
        return ", ".join(f"{name} is {states.get(name)}" for name in names if states.get(name) not in READY)


class Links:
    """The links of a cluster's nodes, as its keeper holds them.

    A run that measures holds them by an open connection. Its end releases them, so that they do not stay limited however
    the run ends, power cuts included.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._before: str | None = None  # the limit to restore
        self._held: dict[socket.socket, str] = {}

    @property
    def holders(self) -> list[socket.socket]:
        return list(self._held)

    @property
    def held_by(self) -> list[str]:
        """The runs that measure over them now."""
        return list(self._held.values())

    @property
    def by_hand(self) -> str | None:
        """Their limit while no run measures over them: the one that `shape` has set."""
        return self._before if self._held else self._nodes.rate

    def shape(self, rate: str | None) -> None:
        """Limit them to `rate`, None for no limit; ClusterError while a run measures over them."""
        if self._held:
            raise ClusterError(self._refusal())
        self._nodes.shape(rate)

    def hold(self, connection: socket.socket, rate: str | None, by: str) -> None:
        """Limit them to `rate` until `connection` ends; ClusterError if a run measures at another rate."""
        if not self._held:
            self._before = self._nodes.rate
        elif rate != self._nodes.rate:
            raise ClusterError(self._refusal())
        if rate != self._nodes.rate:
            self._nodes.shape(rate)
        self._held[connection] = by

    def release(self, connection: socket.socket) -> None:
        """`connection` has ended: the end of the last one restores the limit."""
        if self._held.pop(connection, None) is not None and not self._held and self._nodes.rate != self._before:
            try:
                self._nodes.shape(self._before)
            except ClusterError:  # of a node that is dying
                traceback.print_exc()
        connection.close()

    def _refusal(self) -> str:
        rate = self._nodes.rate or "as fast as this machine"
        return f"the links stay {rate} while {', '.join(self.held_by)} is measured over them: wait for its end"
