"""The main process of a cluster: starts its daemons and nodes, limits their links, answers requests, ends it.

    python -m hpc_utils.rehearsal.keeper FOLDER      (started by `up`, inside the cluster's own namespaces)

Every process of the cluster is a descendant of this one and ends with it. Until `up` sends `keep`, the keeper also ends
with `up`: its standard input is closed then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from hpc_utils.launch.process_tree import adopt_orphans

from . import daemons, host, network, processes
from . import folder as folders
from .host import ClusterError
from .plan import Plan

READY = {"idle", "mixed", "allocated", "completing"}


class Ended(BaseException):
    """A request or a signal to end the cluster."""


class Nodes:
    """The nodes that have power, by name, and the links between them.

    A run that measures holds the links by an open connection. Its end releases them, so that they do not stay limited
    however the run ends, power cuts included.

    Attributes:
        rate: the links' limit now. by_hand: the one that `shape` has set. held: {connection: the run that measures}.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.running: dict[str, daemons.Daemon] = {}
        self.rate: str | None = None
        self.by_hand: str | None = None
        self.held: dict[socket.socket, str] = {}

    def power_on(self, *names: str) -> None:
        """Start nodes and return when Slurm calls them ready; on an error they have no power again."""
        try:
            for name in names:
                self.power_off(name)  # what is left of it if its slurmd ended by itself
                self.running[name] = self._spawn(name)
            for name in () if self.plan.flat else names:
                self._plug(name)
            daemons.wait(lambda: self._lacks(names), *(self.running[name] for name in names))
        except ClusterError:
            for name in names:
                self.power_off(name)
            raise

    def on(self) -> dict[str, int]:
        """{name: process id} of those that have power."""
        return {name: node.process.pid for name, node in self.running.items() if processes.alive(node.process)}

    def power_off(self, name: str) -> None:
        """SIGKILL everything on the node at once; its cable goes first, so that no connection is closed politely."""
        if (gone := self.running.pop(name, None)) is None:
            return
        if not self.plan.flat:
            network.cut(name, self.plan.nodes[name].address)
        processes.kill_descendants(gone.process.pid)
        processes.kill(gone.process)
        gone.process.stdin.close()
        gone.process.stdout.close()

    def shape(self, rate: str | None) -> None:
        """Limit every node's link to `rate`, both ways; None lifts the limit. ClusterError if a run measures at another rate."""
        self._limit(rate)
        self.by_hand = rate

    def hold(self, connection: socket.socket, rate: str | None, by: str) -> None:
        """Limit them to `rate` until `connection` ends; ClusterError if a run measures at another rate."""
        self._limit(rate)
        self.held[connection] = by

    def release(self, connection: socket.socket) -> None:
        """`connection` has ended: the end of the last one restores the limit."""
        if self.held.pop(connection, None) is not None and not self.held:
            try:
                self._limit(self.by_hand)
            except ClusterError:  # of a node that is dying
                traceback.print_exc()
        connection.close()

    def _limit(self, rate: str | None) -> None:
        """All of them or none: ClusterError if one cannot be limited, and the others are then as before."""
        if rate == self.rate:
            return
        if self.held:
            runs = ", ".join(self.held.values())
            raise ClusterError(
                f"the links stay {self.rate or 'as fast as this machine'} while {runs} is measured over them: "
                "wait for its end"
            )
        on = self.on()
        try:
            for name, pid in on.items():
                network.shape(name, pid, rate)
        except ClusterError:
            for name, pid in on.items():
                with suppress(ClusterError):  # the one that could not be limited may not be reached at all
                    network.shape(name, pid, self.rate)
            raise
        self.rate = rate

    def _spawn(self, name: str) -> daemons.Daemon:
        """Start a node's outermost process; the end of its standard input ends it."""
        command = [sys.executable, "-P", "-m", f"{__package__}.node", str(self.plan.folder), name]
        if not self.plan.flat:
            command = [*host.UNSHARE, *command]
        return daemons.spawn(self.plan, name, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _plug(self, name: str) -> None:
        node = self.running[name]
        process = node.process
        daemons.wait(lambda: "" if b"born" in process.stdout.readline() else "no namespaces", node)
        network.plug(name, self.plan.nodes[name].address, process.pid)
        if self.rate:
            network.shape(name, process.pid, self.rate)
        process.stdin.write(b"plugged\n")

    def _lacks(self, names: tuple[str, ...]) -> str:
        """Why Slurm does not send jobs to these nodes yet; "" if it does."""
        for node in map(self.plan.nodes.get, names):
            try:
                socket.create_connection((node.address, node.port), timeout=1).close()
            except OSError as error:
                return f"{node.name} does not listen: {error}"
        states = daemons.node_states(self.plan)
        return ", ".join(f"{name} is {states.get(name)}" for name in names if states.get(name) not in READY)


class Keeper:
    """One cluster from its first daemon to its end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.daemons: list[daemons.Daemon] = []
        self.nodes = Nodes(plan)

    def boot(self) -> None:
        """Start everything, and report each step with the seconds so far."""
        began = time.monotonic()

        def done(step: str) -> None:
            report({"step": step, "seconds": time.monotonic() - began})

        daemons.configure(self.plan)
        if not self.plan.flat:
            socket.sethostname(self.plan.head_name)
            network.build_bridge(self.plan.subnet)
            done("network")
        for step, start in daemons.HEAD.items():
            self.daemons.append(start(self.plan))
            done(step)
        self.nodes.power_on(*self.plan.nodes)
        done("nodes")

    def serve(self) -> None:
        """Answer requests on the cluster's socket, one per connection, until one asks for the end.

        A connection that holds the links stays open and sends nothing more: it becomes readable at its end.
        """
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.plan.folder / "control"))
        server.listen()
        report({"up": True})
        while True:
            processes.reap()
            readable, _, _ = select.select([server, *self.nodes.held], [], [], 1.0)
            for connection in readable:
                if connection is not server:
                    self.nodes.release(connection)
            if server in readable:
                connection, _ = server.accept()
                connection.settimeout(10.0)
                self._attend(connection)

    def _attend(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rw") as stream:
                try:
                    answer = self.do(connection, **json.loads(stream.readline()))
                except (ClusterError, ValueError, TypeError) as error:
                    answer = {"error": str(error)}
                stream.write(json.dumps(answer) + "\n")
        except OSError:  # the client has ended
            self.nodes.release(connection)
        if connection not in self.nodes.held:
            connection.close()

    def do(self, connection: socket.socket, what: str, node: str = "", rate: str | None = None, by: str = "") -> dict:
        """Execute a request of `Cluster`; the answer is the cluster's state after it."""
        match what:
            case "end":
                raise Ended
            case "kill":
                self._require_power(node, True)
                self.nodes.power_off(node)
            case "revive":
                self._require_power(node, False)
                self.nodes.power_on(node)
            case "shape":
                self.nodes.shape(rate)
            case "hold":
                self.nodes.hold(connection, rate, by)
        on = self.nodes.on()
        return {
            "daemons": {daemon.name: processes.alive(daemon.process) for daemon in self.daemons},
            "power": {name: name in on for name in self.plan.nodes},
            "rate": self.nodes.rate,
            "by_hand": self.nodes.by_hand,
            "held": list(self.nodes.held.values()),
        }

    def _require_power(self, node: str, on: bool) -> None:
        if node not in self.plan.nodes:
            raise ClusterError(f"no node {node!r}: there are {', '.join(self.plan.nodes)}")
        if (node in self.nodes.on()) != on:
            raise ClusterError(f"{node} has {'no power' if on else 'power'}")


def main(folder: Path) -> None:
    signal.signal(signal.SIGTERM, _end)
    adopt_orphans()
    report({"born": True})
    if not sys.stdin.readline():
        folders.remove(folder)  # `up` has ended, and there is nothing else yet
        return
    keeper = Keeper(Plan.load(folder))
    failed = False
    try:
        threading.Thread(target=_end_with_caller, daemon=True).start()
        keeper.boot()
        keeper.serve()
    except Ended:
        pass
    except Exception as error:
        failed = True
        traceback.print_exc()
        report({"failed": str(error) if isinstance(error, ClusterError) else f"{type(error).__name__}: {error}"})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not keeper.plan.flat:
            network.ip("link", "del", "uplink", check=False)  # the cable to the host, both its ends
        processes.kill_descendants(os.getpid())
        if failed:
            folders.leave_only_logs(folder)
        else:
            folders.remove(folder)


def report(event: dict) -> None:
    """Write one line to `up`, if it still reads."""
    with suppress(BrokenPipeError):
        os.write(1, (json.dumps(event) + "\n").encode())


def _end(*_: object) -> None:
    raise Ended


def _end_with_caller() -> None:
    """`up` sends `keep` before it closes the pipe; without that it has died."""
    if b"keep" not in os.read(0, 1024):
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
