"""Network interfaces and fabrics of this node: which carry what, and how fast they say they are. Never an address."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path

from hpc_utils import provenance
from hpc_utils.provenance.cpu import MACHINE
from hpc_utils.provenance.machine import infiniband
from hpc_utils.provenance.tools import read

from .check import Facts

UNRESOLVED = ""


def fabric(machine: Path = MACHINE) -> Facts:
    """What this node has beside Ethernet: active InfiniBand (or RoCE) ports, Slingshot, NVLink."""
    ports = active_ports(machine)
    kinds = {"InfiniBand" if layer == "InfiniBand" else "RoCE" for _, layer in ports.values()}
    names = " and ".join(sorted(kinds))
    if any((machine / "sys/class/cxi").glob("cxi*")):
        names = "Slingshot"
    return {
        "fabric": names,
        "verbs": any((machine / "dev/infiniband").glob("uverbs*")),
        "nvlink": bool(re.search(r"\bNV\d+\b", provenance.hardware().nvlink or "")),
    }


def active_ports(machine: Path = MACHINE) -> dict[str, tuple[float | None, str]]:
    """{adapter: (Gbit/s, link layer)} of the InfiniBand and RoCE ports that are up."""
    found: dict[str, tuple[float | None, str]] = {}
    for port in infiniband(machine) or []:
        state = read(machine / f"sys/class/infiniband/{port.device}/ports/{port.port}/state") or ""
        if "ACTIVE" in state:  # `4: ACTIVE`
            rate = re.match(r"([\d.]+) Gb/sec", port.rate or "")
            found[port.device] = (float(rate[1]) if rate else None, port.link_layer or "")
    return found


def speed(name: str) -> float | None:
    """An interface's nominal Gbit/s; None where it does not tell (loopback, many virtual ones)."""
    import psutil  # asks the kernel: /sys may show another network namespace's interfaces

    known = psutil.net_if_stats().get(name)
    return known.speed / 1000 if known and known.speed else None


def carrying() -> list[str]:
    """The interfaces of this process's established connections, those to the launcher's store left out."""
    import psutil

    store = int(os.environ.get("MASTER_PORT", 0))
    connections = psutil.Process().net_connections(kind="tcp")
    ends = [c.laddr.ip for c in connections if c.status == psutil.CONN_ESTABLISHED and c.raddr.port != store]
    return sorted(set(filter(None, map(interface_of, ends))))


def of_host(name: str) -> str | None:
    """The interface with one of `name`'s addresses: UNRESOLVED if it has none, None if it is another machine's."""
    addresses = resolve(name)
    if not addresses:
        return UNRESOLVED
    return next(filter(None, map(interface_of, addresses)), None)


def resolve(name: str) -> list[str]:
    """A host's addresses; [] if it does not resolve."""
    try:
        return [entry[4][0] for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return []


def interface_of(address: str) -> str | None:
    """The interface with that address; None if it is not this machine's."""
    import psutil

    if _plain(address).startswith("127."):  # the whole network is the loopback's, also without an entry of its own
        return "lo"
    for name, entries in psutil.net_if_addrs().items():
        if _plain(address) in {_plain(entry.address) for entry in entries}:
            return name
    return None


def loopback(names: Iterable[str]) -> bool:
    """Whether all of these are the loopback interface (`lo`, on a Mac `lo0`)."""
    return all(re.fullmatch(r"lo\d*", name) for name in names)


def _plain(address: str) -> str:
    """`::ffff:10.0.0.1` is 10.0.0.1; `fe80::1%eth0` is fe80::1."""
    return address.removeprefix("::ffff:").partition("%")[0]
