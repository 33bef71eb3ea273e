"""The daemons of a cluster's head: munged, mariadbd, slurmdbd, slurmctld. Each is a child in the foreground."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import host
from .host import ClusterError, tail
from .plan import Plan
from .process import Process

PATIENCE = 60.0  # seconds; each step takes a second or two where nothing is wrong


@dataclass(frozen=True)
class Daemon:
    """A running program, and the file that has its output."""

    name: str
    process: Process
    output: Path


def environment(plan: Plan) -> dict[str, str]:
    """The environment of the daemons and of our calls of Slurm's tools, without the caller's own job or cluster."""
    kept = {name: os.environ[name] for name in ("HOME", "TZ", "PYTHONPATH") if name in os.environ}
    return kept | {"PATH": host.path(), "LANG": "C.UTF-8", "SLURM_CONF": str(plan.conf)}


def start(plan: Plan, name: str, command: list[str], extra: dict[str, str] | None = None) -> Daemon:
    """Start `command`; without a process-id namespace the kernel ends it with its parent."""
    if plan.flat:
        command = ["setpriv", "--pdeathsig", "KILL", *command]
    return spawn(plan, name, command, environment(plan) | (extra or {}))


def spawn(plan: Plan, name: str, command: list[str], env: dict[str, str], **streams: int) -> Daemon:
    """Start `command` with its output in a file, unless `streams` is given."""
    with plan.output(name).open("ab") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output} | streams
        child = subprocess.Popen(command, env=env, start_new_session=True, **streams)
    return Daemon(name, Process.of(child.pid), plan.output(name))


def wait(lacks: Callable[[], str], *daemons: Daemon) -> None:
    """Poll until `lacks` returns ""; ClusterError with the end of its output if a daemon ends, or it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while lacking := lacks():
        dead = [daemon for daemon in daemons if not daemon.process.alive]
        if dead or time.monotonic() > deadline:
            culprit = dead[0] if dead else daemons[0]
            state = "ended" if dead else f"is not ready after {PATIENCE:.0f} s ({lacking})"
            raise ClusterError(f"{culprit.name} {state}; the end of {tail(culprit.output)}")
        time.sleep(0.02)


def failure(plan: Plan, *command: str) -> str:
    """The output of `command` if it fails; "" if it succeeds."""
    done = subprocess.run(command, env=environment(plan), capture_output=True, text=True)
    return f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}" if done.returncode else ""


def node_states(plan: Plan) -> dict[str, str]:
    """Slurm's state of each node."""
    command = ["sinfo", "--noheader", "--Node", "--format", "%N %T"]
    output = subprocess.run(command, env=environment(plan), capture_output=True, text=True).stdout
    return dict(line.split() for line in output.splitlines())


def munged(plan: Plan) -> Daemon:
    """Authentication, with a key and a socket of the cluster's own."""
    own = plan.folder / "munge"
    options = [f"--key-file={own}/key", f"--socket={plan.munge_socket}", f"--pid-file={own}/pid"]
    options += [f"--seed-file={own}/seed", "--num-threads=4"]
    # --force: the folder above is private, which munged takes for a mistake.
    daemon = start(plan, "munged", ["munged", "--foreground", "--force", *options])
    wait(lambda: failure(plan, "munge", "--no-input", "--socket", str(plan.munge_socket)), daemon)
    return daemon


def mariadbd(plan: Plan) -> Daemon:
    """The database of the accounting."""
    defaults = f"--defaults-file={plan.folder / 'etc' / 'mariadb.conf'}"
    install = ["mariadb-install-db", defaults, "--skip-test-db", "--auth-root-authentication-method=normal"]
    output = plan.output(install[0])
    with output.open("wb") as file:
        done = subprocess.run(install, env=environment(plan), stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    if done.returncode:
        raise ClusterError(f"mariadb-install-db failed; the end of {tail(output)}")
    daemon = start(plan, "mariadbd", ["mariadbd", defaults])
    wait(lambda: "" if plan.database_socket.exists() else f"no {plan.database_socket}", daemon)
    return daemon


def slurmdbd(plan: Plan) -> Daemon:
    """Accounting."""
    daemon = start(plan, "slurmdbd", ["slurmdbd", "-D"], {"MYSQL_UNIX_PORT": str(plan.database_socket)})
    wait(lambda: failure(plan, "sacctmgr", "--noheader", "list", "cluster"), daemon)
    return daemon


def slurmctld(plan: Plan) -> Daemon:
    """The controller."""
    daemon = start(plan, "slurmctld", ["slurmctld", "-D"])
    wait(lambda: failure(plan, "scontrol", "ping"), daemon)
    return daemon


# In the order in which they need each other.
HEAD = {"munge": munged, "database": mariadbd, "accounting": slurmdbd, "controller": slurmctld}
