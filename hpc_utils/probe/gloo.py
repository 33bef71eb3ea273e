"""Over which interface gloo connects the ranks: where its connections really are, not where they should be."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import interfaces
from .bench import Bench
from .check import Check, Facts, Seen, failed, not_applicable, passed, places
from .group import enter

EXPECTED = "the cluster's network, not the loopback interface"
CHOOSE = (
    "set GLOO_SOCKET_IFNAME to the cluster's network (`ip -br addr` lists them; `network.interface` in the cluster "
    "file)"
)


def look(bench: Bench) -> Facts:
    """Over which interfaces this rank is connected."""
    enter(bench)
    bench.ranks.barrier()
    return {
        "ranks": bench.world,
        "nodes": bench.nodes,
        "used": {name: interfaces.speed(name) for name in interfaces.carrying()},
        "chosen": os.environ.get("GLOO_SOCKET_IFNAME"),
    }


def judge(seen: Sequence[Seen]) -> Check:
    """All ranks' connections: on several nodes none may be on loopback alone."""
    facts = seen[0].facts
    if facts["ranks"] == 1:
        return not_applicable("one rank has nobody to talk to")
    used = {name: gbit for one in seen for name, gbit in one.facts["used"].items()}
    if not used:
        return not_applicable("no connection but the launcher's")
    chosen = f", chosen by GLOO_SOCKET_IFNAME={facts['chosen']}" if facts["chosen"] else ""
    named = ", ".join(f"{name} ({gbit:g} Gbit/s)" if gbit else name for name, gbit in sorted(used.items()))
    alone = [one for one in seen if one.facts["used"] and interfaces.loopback(one.facts["used"])]
    if facts["nodes"] > 1 and alone:
        return failed(f"gloo over {named}{chosen}", EXPECTED, CHOOSE, places(alone))
    return passed(f"gloo over {named}{chosen}", EXPECTED if facts["nodes"] > 1 else "")
