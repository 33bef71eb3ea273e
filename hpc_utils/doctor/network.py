"""Interfaces, fabrics and host names of this node: which are there, how fast, and over which do ranks connect?

Addresses are never reported.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path

import psutil

from hpc_utils import provenance
from hpc_utils.provenance.machine import MACHINE, infiniband
from hpc_utils.provenance.tools import read_text

from .check import Context, Facts, Observations, Result, failed, judge, locations, not_applicable, passed

UNRESOLVED = ""


def fabric(machine: Path = MACHINE) -> Facts:
    """Networks of this node besides Ethernet: active InfiniBand or RoCE ports, Slingshot, NVLink."""
    kinds = {"InfiniBand" if layer == "InfiniBand" else "RoCE" for _, layer in active_ports(machine).values()}
    slingshot = any((machine / "sys/class/cxi").glob("cxi*"))
    return {
        "fabric": "Slingshot" if slingshot else " and ".join(sorted(kinds)),
        "nvlink": bool(re.search(r"\bNV\d+\b", provenance.hardware().nvlink or "")),
    }


def active_ports(machine: Path = MACHINE) -> dict[str, tuple[float | None, str]]:
    """{adapter: (Gbit/s, link layer)} of the InfiniBand and RoCE ports that are up."""
    ports: dict[str, tuple[float | None, str]] = {}
    for port in infiniband(machine) or []:
        state = read_text(machine / f"sys/class/infiniband/{port.device}/ports/{port.port}/state") or ""
        if "ACTIVE" in state:  # `4: ACTIVE`
            rate = re.match(r"([\d.]+) Gb/sec", port.rate or "")
            ports[port.device] = (float(rate[1]) if rate else None, port.link_layer or "")
    return ports


def speed(name: str) -> float | None:
    """An interface's nominal Gbit/s; None if it has none (loopback, many virtual ones)."""
    statistics = psutil.net_if_stats().get(name)  # /sys may show another network namespace's interfaces
    return statistics.speed / 1000 if statistics and statistics.speed else None


def connected() -> list[str]:
    """The interfaces of this process's established connections, except those to the launcher's store."""
    store = int(os.environ.get("MASTER_PORT", 0))
    connections = psutil.Process().net_connections(kind="tcp")
    ends = {c.laddr.ip for c in connections if c.status == psutil.CONN_ESTABLISHED and c.raddr.port != store}
    return sorted({name for end in ends if (name := interface_of(end))})


def interface_of_host(name: str) -> str | None:
    """The interface with an address of that host: UNRESOLVED if it has none, None if it is another machine's."""
    try:
        addresses = [entry[4][0] for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        return UNRESOLVED
    return next(filter(None, map(interface_of, addresses)), None)


def interface_of(address: str) -> str | None:
    """The interface with that address; None if it is not this machine's."""
    address = address.removeprefix("::ffff:").partition("%")[0]  # `::ffff:10.0.0.1`, `fe80::1%eth0`
    if address.startswith("127."):  # the whole network is the loopback interface's, also without an entry
        return "lo"
    for name, entries in psutil.net_if_addrs().items():
        if address in {entry.address.partition("%")[0] for entry in entries}:
            return name
    return None


def loopback(names: Iterable[str]) -> bool:
    """Whether all of these are the loopback interface (`lo`, on a Mac `lo0`)."""
    return all(re.fullmatch(r"lo\d*", name) for name in names)


def measure_names(context: Context) -> Facts:
    """The interface of the own name, and the other hosts whose names do not resolve or mean this node."""
    hostname = socket.gethostname()
    other_hosts = sorted(set(context.hosts) - {hostname, hostname.partition(".")[0], ""})
    return {
        "nodes": len(other_hosts) + 1,
        "own": interface_of_host(hostname),
        "unknown": [name for name in other_hosts if interface_of_host(name) in (UNRESOLVED, "lo")],
    }


@judge("names", "each node's own name and all others resolve to the cluster's network", each=True)
def judge_names(facts: Facts) -> Result:
    """One node's names."""
    interface = facts["own"]
    several = facts["nodes"] > 1
    fix = "correct /etc/hosts: torchrun, gloo and Slurm look names up (`127.0.0.1 NAME` on a single machine)"
    if several:
        fix = "ask the site's support: names of nodes must resolve on nodes (in a container, bind /etc/hosts)"
    if interface == UNRESOLVED:
        return failed("the host's own name does not resolve", fix)
    if interface is None:
        return failed("the host's own name resolves to an address that this machine does not have", fix)
    if facts["unknown"]:
        return failed(f"not resolved here, or to this node itself: {', '.join(facts['unknown'][:4])}", fix)
    if several and loopback([interface]):
        return failed("the host's own name resolves to the loopback interface", fix)
    return passed(f"own name on {interface}" + ", all nodes known" * several)


def measure_interface(context: Context) -> Facts:
    """The interfaces over which gloo really connects this rank."""
    context.enter().barrier()
    return {"nodes": context.nodes, "used": {name: speed(name) for name in connected()}}


@judge("interface", "the cluster's network, between nodes not the loopback interface")
def judge_interface(observations: Observations) -> Result:
    """All ranks' connections: on several nodes none may be on loopback alone."""
    used = {name: gbit for observation in observations for name, gbit in observation["used"].items()}
    if not used:
        return not_applicable("no connections besides the launcher's")
    names = [f"{name} ({gbit:g} Gbit/s)" if gbit else name for name, gbit in sorted(used.items())]
    measured = f"gloo over {', '.join(names)}"
    local = [observation for observation in observations if observation["used"] and loopback(observation["used"])]
    if observations[0]["nodes"] > 1 and local:
        fix = "set GLOO_SOCKET_IFNAME to it (`ip -br addr` lists interfaces; `network.interface` in the cluster file)"
        return failed(measured, fix, locations(local))
    return passed(measured)
