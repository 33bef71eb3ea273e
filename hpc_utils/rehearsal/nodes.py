"""A cluster's nodes, as its keeper holds them: started, cut from power, shaped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from . import daemons, namespaces, network, process
from .errors import ClusterError
from .plan import Plan

READY = {"idle", "mixed", "allocated", "completing"}


@dataclass(frozen=True)
class Running:
    """A started node: its outermost process, what it says, and the cord whose cutting ends it."""

    daemon: daemons.Daemon
    voice: BinaryIO
    cord: BinaryIO


class Nodes:
    """The nodes that have power, by name."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rate: str | None = None
        self.running: dict[str, Running] = {}

    def power_on(self, *names: str) -> None:
        """Start nodes and return when Slurm calls them ready; a node that does not get there has no power again."""
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
        gone.cord.close()
        gone.voice.close()

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
            command = [*namespaces.UNSHARE, *command]
        its_end, cord = os.pipe()
        voice, its_voice = os.pipe()
        env = daemons.environment(self.plan)
        daemon = daemons.spawn(self.plan, name, command, env, stdin=its_end, stdout=its_voice)
        os.close(its_end)
        os.close(its_voice)
        return Running(daemon, os.fdopen(voice, "rb"), os.fdopen(cord, "wb", buffering=0))

    def _plug(self, name: str) -> None:
        node = self.running[name]
        daemons.wait(lambda: "" if b"born" in node.voice.readline() else "no namespaces", node.daemon)
        network.plug(name, self.plan.node(name).address, node.daemon.process.pid)
        if self.rate:
            network.shape(name, node.daemon.process.pid, self.rate)
        node.cord.write(b"plugged\n")

    def _lacks(self, names: tuple[str, ...]) -> str:
        """What keeps Slurm from sending jobs to these nodes; "" if nothing."""
        for node in map(self.plan.node, names):
            try:
                socket.create_connection((node.address, node.port), timeout=1).close()
            except OSError as error:
                return f"{node.name} does not listen: {error}"
        command = ["sinfo", "--noheader", "--Node", "--nodes", ",".join(names), "--format", "%N %T"]
        said = subprocess.run(command, env=daemons.environment(self.plan), capture_output=True, text=True).stdout
        states = dict(line.split() for line in said.splitlines())
        return ", ".join(f"{name} is {states.get(name)}" for name in names if states.get(name) not in READY)
