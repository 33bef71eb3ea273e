"""The daemons of a cluster's head (munged, mariadbd, slurmdbd, slurmctld) and the files that they read.

Each is a child in the foreground.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from . import host, processes
from .host import ClusterError, tail
from .plan import Plan

PATIENCE = 60.0  # seconds; each step takes a second or two where nothing is wrong
FOLDERS = ("etc", "log", "run", "state", "spool", "dev", "munge", "mariadb")
FILES = ("slurm.conf", "slurmdbd.conf", "mariadb.conf", "task_prolog.sh")  # filled in from those beside this module
MEMORY_PER_CPU = 16_000  # MB that each claimed CPU brings; claimed only, never enforced


@dataclass(frozen=True)
class Daemon:
    """A running program, and the file that has its output."""

    name: str
    process: psutil.Popen
    output: Path


def configure(plan: Plan) -> None:
    """Write everything that the daemons read: configuration, host names, keys, stand-ins for GPUs."""
    from jinja2 import Template  # nodes import this module, too, and do without

    for name in FOLDERS:
        (plan.folder / name).mkdir(exist_ok=True)
    etc = plan.folder / "etc"
    # Where no network is up, Slurm resolves not even 127.0.0.1 unless IPv6 counts too (getaddrinfo's AI_ADDRCONFIG).
    ipv6 = plan.flat and Path("/proc/net/if_inet6").exists()
    for name in FILES:
        template = Template(Path(__file__).with_name(name).read_text(), trim_blocks=True)
        _private(etc / name, template.render(plan=plan, memory_per_cpu=MEMORY_PER_CPU, ipv6=ipv6).encode() + b"\n")
    # A GPU must be a character device with a number in its name: links to /dev/null are, and need no root.
    gpus = [plan.folder / "dev" / f"nvidia{number}" for number in range(plan.gpus)]
    for gpu in gpus:
        gpu.symlink_to("/dev/null")
    stand_ins = [f"NodeName={node} Name=gpu File={gpu}\n" for node in plan.nodes for gpu in gpus]
    _private(etc / "gres.conf", "".join(stand_ins).encode())
    named = [(plan.head, plan.head_name), *((node.address, node.name) for node in plan.nodes.values())]
    names = "".join(f"{address} {name}\n" for address, name in named)  # on top of the machine's
    _private(etc / "hosts", names.encode() + Path("/etc/hosts").read_bytes())
    _private(plan.folder / "munge" / "key", os.urandom(128))


def _private(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o700 if path.suffix == ".sh" else 0o600)


def environment(plan: Plan) -> dict[str, str]:
    """The environment of the daemons and of our calls of Slurm's tools, without the caller's own job or cluster."""
    inherited = {name: os.environ[name] for name in ("HOME", "TZ", "PYTHONPATH") if name in os.environ}
    return inherited | {"PATH": host.path(), "LANG": "C.UTF-8", "SLURM_CONF": str(plan.conf)}


def spawn(plan: Plan, name: str, command: list[str], env: dict[str, str] | None = None, **streams: int) -> Daemon:
    """Start `command` with its output in a file, unless `streams` is given."""
    with plan.output(name).open("ab") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output} | streams
        process = psutil.Popen(
            command, env=environment(plan) | (env or {}), start_new_session=True, bufsize=0, **streams
        )
    return Daemon(name, process, plan.output(name))


def wait(lacks: Callable[[], str], *daemons: Daemon) -> None:
    """Poll until `lacks` returns ""; ClusterError with the end of its output if a daemon ends, or it takes too long."""
    deadline = time.monotonic() + PATIENCE
    while missing := lacks():
        dead = [daemon for daemon in daemons if not processes.alive(daemon.process)]
        if dead or time.monotonic() > deadline:
            culprit = dead[0] if dead else daemons[0]
            state = "ended" if dead else f"is not ready after {PATIENCE:.0f} s ({missing})"
            raise ClusterError(f"{culprit.name} {state}; the end of {tail(culprit.output)}")
        time.sleep(0.1)  # most looks start a program


def node_states(plan: Plan) -> dict[str, str]:
    """Slurm's state of each node."""
    command = ["sinfo", "--noheader", "--Node", "--format", "%N %T"]
    output = subprocess.run(command, env=environment(plan), capture_output=True, text=True).stdout
    return dict(line.split() for line in output.splitlines())


def _start(plan: Plan, command: list[str], ready: list[str], **env: str) -> Daemon:
    """Start a daemon and wait until the command `ready` succeeds; without a process-id namespace the kernel ends the daemon
    with its parent."""
    bound = ["setpriv", "--pdeathsig", "KILL", *command] if plan.flat else command
    daemon = spawn(plan, command[0], bound, env)

    def lacks() -> str:
        done = subprocess.run(ready, env=environment(plan), capture_output=True, text=True)
        return f"{' '.join(ready)}: {(done.stderr or done.stdout).strip()}" if done.returncode else ""

    wait(lacks, daemon)
    return daemon


def munged(plan: Plan) -> Daemon:
    """Authentication, with a key and a socket of the cluster's own."""
    folder = plan.folder / "munge"
    options = [f"--key-file={folder}/key", f"--socket={plan.munge_socket}", f"--pid-file={folder}/pid"]
    options += [f"--seed-file={folder}/seed", "--num-threads=4"]
    # --force: the folder above is private, which munged takes for a mistake.
    command = ["munged", "--foreground", "--force", *options]
    return _start(plan, command, ["munge", "--no-input", "--socket", str(plan.munge_socket)])


def mariadbd(plan: Plan) -> Daemon:
    """The database of the accounting."""
    defaults = f"--defaults-file={plan.folder / 'etc' / 'mariadb.conf'}"
    install = ["mariadb-install-db", defaults, "--skip-test-db", "--auth-root-authentication-method=normal"]
    output = plan.output(install[0])
    with output.open("wb") as file:
        done = subprocess.run(install, env=environment(plan), stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    if done.returncode:
        raise ClusterError(f"mariadb-install-db failed; the end of {tail(output)}")
    return _start(plan, ["mariadbd", defaults], ["test", "-S", str(plan.database_socket)])


def slurmdbd(plan: Plan) -> Daemon:
    """Accounting."""
    ready = ["sacctmgr", "--noheader", "list", "cluster"]
    return _start(plan, ["slurmdbd", "-D"], ready, MYSQL_UNIX_PORT=str(plan.database_socket))


def slurmctld(plan: Plan) -> Daemon:
    """The controller."""
    return _start(plan, ["slurmctld", "-D"], ["scontrol", "ping"])


# In the order in which they need each other.
HEAD = {"munge": munged, "database": mariadbd, "accounting": slurmdbd, "controller": slurmctld}
