"""A cluster's own network: one link on the host, a bridge and the nodes' links inside its network namespace.

The host holds one end of a virtual cable (`hpcN`, address 198.18.x.1); its other end, the bridge and the nodes' cables
are in the cluster's network namespace. When the last process there ends, the kernel removes them all.
"""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path

from . import host
from .host import ClusterError

# Reserved for benchmarks (RFC 2544), so that a cluster's network hides no real one.
RANGE = ipaddress.ip_network("198.18.0.0/15")
SUBNETS = list(RANGE.subnets(new_prefix=24))
HOST, HEAD, FIRST_NODE = 1, 2, 11
RATE = re.compile(r"[1-9][0-9]{0,3}(\.[0-9]{1,3})?(kbit|mbit|gbit)")


def address(subnet: int, host: int) -> str:
    """The address of host number `host` in subnet number `subnet`."""
    return str(SUBNETS[subnet][host])


def hardware(ip_address: str) -> str:
    """The MAC address that belongs to an IP address.

    Neighbours cache it: a revived node keeps it, and so does the bridge, which by default takes that of some node.
    """
    return "02:42:" + ":".join(f"{byte:02x}" for byte in ipaddress.ip_address(ip_address).packed)


def claim(folder: Path, pid: int) -> int:
    """Lay a cable from the host into the network namespace of `pid`; the number of the subnet, now this cluster's.

    The kernel refuses a second interface of one name, so two clusters that start at once get two numbers.
    """
    routes = json.loads(ip("-4", "-j", "route", "show", "table", "all").stdout or "[]")
    destinations = [route["dst"] for route in routes if route.get("dst", "default") != "default"]
    networks = [ipaddress.ip_network(destination, strict=False) for destination in destinations]
    first = zlib.crc32(bytes(folder))
    for subnet in ((first + offset) % len(SUBNETS) for offset in range(len(SUBNETS))):
        if any(SUBNETS[subnet].overlaps(network) for network in networks):
            continue
        link = f"hpc{subnet}"
        added = ip(*f"link add {link} type veth peer name uplink netns {pid}".split(), check=False)
        if added.returncode == 0:
            ip("link", "set", link, "alias", str(folder))
            ip("addr", "add", f"{address(subnet, HOST)}/24", "dev", link)
            ip("link", "set", link, "up")
            return subnet
        if "exists" not in added.stderr:
            raise ClusterError(f"{' '.join(added.args)}: {added.stderr.strip()}")
    raise ClusterError(f"every network in {RANGE} is taken: see `ip route`")


def unplug(folder: Path) -> list[str]:
    """Remove the host's end of `folder`'s cable, if there is one; the names removed."""
    if not shutil.which("ip", path=host.path()):
        return []  # only flat clusters are possible
    links = json.loads(ip("-j", "link", "show", "type", "veth").stdout or "[]")
    ours = [link["ifname"] for link in links if link.get("ifalias") == str(folder)]
    for link in ours:
        ip("link", "del", link, check=False)
    return ours


def build_bridge(subnet: int) -> None:
    """Inside the cluster's namespace: the bridge that joins the uplink and the nodes."""
    _batch(
        "link set lo up",
        f"link add bridge address {hardware(address(subnet, HEAD))} type bridge",
        "link set uplink master bridge",
        "link set uplink up",
        f"addr add {address(subnet, HEAD)}/24 dev bridge",
        "link set bridge up",
    )


def plug(node: str, ip_address: str, pid: int) -> None:
    """Inside the cluster's namespace: a cable from the bridge to `eth0` in the network namespace of `pid`."""
    far = f"name eth0 address {hardware(ip_address)} netns {pid}"
    _batch(
        f"link add {node} type veth peer {far}",
        f"link set {node} master bridge",
        f"link set {node} up",
    )


def configure(ip_address: str) -> None:
    """Inside a node's namespace: its address."""
    _batch("link set lo up", f"addr add {ip_address}/24 dev eth0", "link set eth0 up")


def cut(node: str, ip_address: str) -> None:
    """Inside the cluster's namespace: remove the node's cable, so that no connection is closed in order.

    The head's neighbour entry is removed too, which the kernel keeps for up to a minute: until then a connection times
    out instead of being refused, and Slurm tries again for 10 s each time.
    """
    ip("link", "del", node, check=False)
    ip("neigh", "flush", "dev", "bridge", "to", ip_address, check=False)


def shape(node: str, pid: int, rate: str | None) -> None:
    """Inside the cluster's namespace: limit both directions of the node's link to `rate`; None lifts the limit."""
    for where, device in ([], node), (["nsenter", f"--net=/proc/{pid}/ns/net"], "eth0"):
        if rate is None:
            _run([*where, "tc", "qdisc", "del", "dev", device, "root"], check=False)
        else:
            bucket = f"tbf rate {rate} burst 1mbit latency 100ms".split()
            _run([*where, "tc", "qdisc", "replace", "dev", device, "root", *bucket])


def rate_of(gbit: float) -> str:
    """`gbit` Gbit/s in the form of `shape`, with three decimals: 0.3 is 300mbit; ClusterError out of range."""
    for unit, number in (("kbit", gbit * 1e6), ("mbit", gbit * 1e3), ("gbit", gbit)):
        if 1 <= number < 9999.5:
            return f"{number:.3f}".rstrip("0").rstrip(".") + unit
    raise ClusterError(f"a link of {gbit:g} Gbit/s: from 1 kbit/s to 9999 Gbit/s are possible")


def ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run(["ip", *arguments], check=check)


def _batch(*commands: str) -> None:
    _run(["ip", "-batch", "-"], input="\n".join(commands) + "\n")


def _run(command: list[str], *, check: bool = True, input: str | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env={"PATH": host.path()}, input=input, capture_output=True, text=True)
    if check and done.returncode:
        raise ClusterError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done
