"""Writes a cluster's files: Slurm's and MariaDB's configuration, host names, keys, stand-ins for GPUs."""

from __future__ import annotations

import os
import shutil
import socket
from importlib.resources import files
from pathlib import Path
from string import Template

from .plan import Plan

FOLDERS = ("etc", "log", "run", "state", "spool", "dev", "munge", "mariadb")
MEMORY_PER_CPU = 16_000  # MB that each claimed CPU brings; claimed only, never enforced


def write(plan: Plan) -> None:
    """Everything the daemons read, under the plan's folder."""
    for name in FOLDERS:
        (plan.folder / name).mkdir(exist_ok=True)
    etc = plan.folder / "etc"
    values = {
        "cluster": plan.name,
        "folder": plan.folder,
        "user": plan.user,
        "head_name": plan.head[0],
        "head_address": plan.head[1],
        "controller_port": plan.controller_port,
        "accounting_port": plan.accounting_port,
        "munge_socket": plan.munge_socket,
        "database_socket": plan.database_socket,
        "memory_per_cpu": MEMORY_PER_CPU,
        "communication": _communication(plan),
        "prolog": f"TaskProlog={etc}/task_prolog" if plan.node_cores else "",
        "nodes": "\n".join(_nodes(plan)),
    }
    for name in ("slurm.conf", "slurmdbd.conf", "mariadb.conf"):
        text = Template(files(__package__).joinpath(name).read_text(encoding="utf-8"))
        _private(etc / name, text.substitute(values).encode())
    _private(etc / "gres.conf", "".join(f"{line}\n" for line in _gpus(plan)).encode())
    _private(etc / "hosts", "".join(f"{line}\n" for line in _hosts(plan)).encode())
    _private(plan.folder / "munge" / "key", os.urandom(128))
    prolog = Template(files(__package__).joinpath("task_prolog.sh").read_text(encoding="utf-8"))
    _private(etc / "task_prolog", prolog.substitute(node_cores=plan.node_cores).encode(), mode=0o700)


def _communication(plan: Plan) -> str:
    """Where no network is up, Slurm resolves not even 127.0.0.1 unless IPv6 counts too (getaddrinfo's AI_ADDRCONFIG).

    A cluster with namespaces brings a network of its own.
    """
    if not plan.flat:
        return ""
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return ""
    return "CommunicationParameters=EnableIPv6"


def _nodes(plan: Plan) -> list[str]:
    hardware = f"CPUs={plan.cpus} Boards=1 Sockets=1 CoresPerSocket={plan.cpus} ThreadsPerCore=1"
    hardware += f" RealMemory={MEMORY_PER_CPU * plan.cpus}" + (f" Gres=gpu:{plan.gpus}" if plan.gpus else "")
    return [
        f"NodeName={node.name} NodeHostname={plan.head[0] if plan.flat else node.name} "
        f"NodeAddr={node.address} Port={node.port} {hardware}"
        for node in plan.nodes
    ]


def _gpus(plan: Plan) -> list[str]:
    """A GPU must be a character device with a number in its name: links to /dev/null are, and need no root."""
    devices = [plan.folder / "dev" / f"nvidia{number}" for number in range(plan.gpus)]
    for device in devices:
        device.symlink_to("/dev/null")
    return [f"NodeName={node.name} Name=gpu File={device}" for node in plan.nodes for device in devices]


def _hosts(plan: Plan) -> list[str]:
    """/etc/hosts of the head and the nodes: their own names on top of the machine's."""
    named = [(plan.head[1], plan.head[0]), *((node.address, node.name) for node in plan.nodes)]
    return [f"{address} {name}" for address, name in named] + Path("/etc/hosts").read_text().splitlines()


def _private(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def leave_only_logs(folder: Path) -> None:
    """Delete all but the logs: a failed start leaves the reader these."""
    for one in folder.iterdir():
        if one.name != "log":
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
