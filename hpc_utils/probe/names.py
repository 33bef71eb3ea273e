"""Do the nodes know each other, and themselves, by name?

    srun --ntasks-per-node=1 python -m hpc_utils.probe.names $(scontrol show hostnames)

Before anything else on a new cluster: torchrun itself needs the names, and fails without a clear word where they are
wrong. Prints what is wrong on this node and what to do; the exit code is then 1. Imports no torch.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable

from . import interfaces
from .bench import Bench
from .check import Check, Facts, Verdict, failed, passed

EXPECTED = "each node's own name and all others resolve to the cluster's network"
HOSTS = "ask the site's support: names of nodes must resolve on nodes (in a container, bind /etc/hosts)"


def look(bench: Bench) -> Facts:
    """What the names stand for on this node."""
    return facts(filter(None, bench.hosts))


def facts(hosts: Iterable[str]) -> Facts:
    """The interface that the own name stands for, and which other hosts' names stand for nothing or for loopback."""
    own = socket.gethostname()
    others = sorted(set(hosts) - {own, own.partition(".")[0]})
    return {
        "nodes": len(others) + 1,
        "own": interfaces.of_host(own),
        "strangers": [name for name in others if interfaces.of_host(name) in (interfaces.UNRESOLVED, "lo")],
    }


def judge(facts: Facts) -> Check:
    """One node's names."""
    own = facts["own"]
    if own == interfaces.UNRESOLVED:
        fix = "add it to /etc/hosts (`127.0.0.1 NAME` on a single machine): torchrun, gloo and Slurm look it up"
        return failed("the host's own name does not resolve", EXPECTED, fix if facts["nodes"] == 1 else HOSTS)
    if own is None:
        fix = "correct /etc/hosts: the name must stand for an address of this machine (`ip -br addr` lists them)"
        return failed("the host's own name stands for an address that this machine does not have", EXPECTED, fix)
    if facts["strangers"]:
        return failed(f"not known here, or as this node itself: {', '.join(facts['strangers'][:4])}", EXPECTED, HOSTS)
    if facts["nodes"] > 1 and interfaces.loopback([own]):
        return failed("the host's own name stands for the loopback interface", EXPECTED, HOSTS)
    return passed(f"own name on {own}" + ", all nodes known" * (facts["nodes"] > 1), EXPECTED)


def main(hosts: list[str]) -> int:
    """Say what is wrong with the names on this node; 1 if something is."""
    check = judge(facts(hosts))
    if check.verdict is not Verdict.FAIL:
        return 0
    print(f"{socket.gethostname()}: {check.measured}\n  fix: {check.fix}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
