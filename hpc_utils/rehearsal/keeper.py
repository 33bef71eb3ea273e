"""The main process of a cluster: starts its daemons and nodes, answers requests, ends it.

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
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from . import configure, daemons, network, process
from . import folder as folders
from .host import ClusterError
from .nodes import Links, Nodes
from .plan import Plan


class Ended(BaseException):
    """A request or a signal to end the cluster."""


class Keeper:
    """One cluster from its first daemon to its end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.daemons: list[daemons.Daemon] = []
        self.nodes = Nodes(plan)
        self.links = Links(self.nodes)

    def boot(self) -> None:
        """Start everything, and report each step with the seconds so far."""
        began = time.monotonic()

        def done(step: str) -> None:
            say({"step": step, "seconds": time.monotonic() - began})

        configure.write(self.plan)
        if not self.plan.flat:
            socket.sethostname(self.plan.head[0])
            network.build_bridge(self.plan.subnet)
            done("network")
        for step, start in daemons.HEAD.items():
            self.daemons.append(start(self.plan))
            done(step)
        self.nodes.power_on(*(node.name for node in self.plan.nodes))
        done("nodes")

    def serve(self) -> None:
        """Answer requests on the cluster's socket, one per connection, until one asks for the end.

        A connection that holds the links stays open and sends nothing more: it becomes readable at its end.
        """
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(self.plan.folder / "control"))
        server.listen()
        say({"up": True})
        while True:
            process.reap()
            readable, _, _ = select.select([server, *self.links.holders], [], [], 1.0)
            for connection in readable:
                if connection is not server:
                    self.links.release(connection)
            if server in readable:
                connection, _ = server.accept()
                connection.settimeout(10.0)
                self._attend(connection)

    def _attend(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(self._answer(stream.readline(), connection)) + "\n")
        except OSError:  # the client has ended
            self.links.release(connection)
        if connection not in self.links.holders:
            connection.close()

    def _answer(self, request: str, connection: socket.socket) -> dict:
        try:
            return self.do(connection, **json.loads(request))
        except (ClusterError, ValueError, TypeError) as error:
            return {"error": str(error)}

    def do(self, connection: socket.socket, what: str, node: str = "", rate: str | None = None, by: str = "") -> dict:
        """Execute a request of `Cluster`; the answer is the cluster's state after it."""
        match what:
            case "end":
                raise Ended
            case "kill":
                self.nodes.power_off(node)
            case "revive":
                self.nodes.power_on(node)
            case "shape":
                self.links.shape(rate)
            case "hold":
                self.links.hold(connection, rate, by)
        return {
            "daemons": {daemon.name: daemon.process.alive for daemon in self.daemons},
            "power": self.nodes.power(),
            "rate": self.nodes.rate,
            "by_hand": self.links.by_hand,
            "held": self.links.held_by,
        }

    def end(self) -> None:
        """Kill every process of the cluster at once."""
        if not self.plan.flat:
            network.unplug_uplink()
        process.kill_descendants(os.getpid())


def main(folder: Path) -> None:
    signal.signal(signal.SIGTERM, _end)
    process.adopt_orphans()
    say({"born": True})
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
        say({"failed": str(error) if isinstance(error, ClusterError) else f"{type(error).__name__}: {error}"})
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        keeper.end()
        if failed:
            configure.leave_only_logs(folder)
        else:
            folders.remove(folder)


def say(event: dict) -> None:
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
