"""Do the nodes agree on the code, on torch, and on what time it is?"""

from __future__ import annotations

import time
from collections.abc import Sequence

from hpc_utils import provenance

from .bench import Bench
from .check import Check, Facts, Seen, failed, not_applicable, passed, places
from .group import enter

SAME = "the same code, torch and Python on every node"
APART = 1.0  # s: records compare times of different nodes


def look_software(bench: Bench) -> Facts:
    """What would measure on this node."""
    versions = provenance.versions()
    return {
        "digest": provenance.measuring_digest()[:12],
        "torch": versions["torch"],
        "CUDA": versions["cuda"] or versions["hip"],
        "NCCL": versions["nccl"],
        "Python": versions["python"],
        "nodes": bench.nodes,
    }


def judge_software(seen: Sequence[Seen]) -> Check:
    """All nodes' software side by side."""
    first = seen[0].facts
    for what in ("digest", "torch", "CUDA", "NCCL", "Python"):
        others = [one for one in seen if one.facts[what] != first[what]]
        if others:
            return failed(
                f"{what} {first[what]} on {seen[0].host}, but {others[0].facts[what]}",
                SAME,
                "one copy of the compendium and one environment on a file system that all nodes see; are modules or "
                "the container loaded on every node?",
                places(others),
            )
    return passed(f"code {first['digest']}, torch {first['torch']}, Python {first['Python']}", SAME)


def look_clock(bench: Bench) -> Facts:
    """This node's time as the ranks leave a barrier, three times."""
    enter(bench)
    times = []
    for _ in range(3):
        bench.ranks.barrier()
        times.append(time.time())
    return {"nodes": bench.nodes, "times": times}


def judge_clock(seen: Sequence[Seen]) -> Check:
    """The least difference of three: leaving the barrier at different moments only adds to it."""
    if seen[0].facts["nodes"] == 1:
        return not_applicable("one node has one clock")
    rounds = list(zip(*(one.facts["times"] for one in seen), strict=True))
    best = min(rounds, key=lambda times: max(times) - min(times))
    apart, middle = max(best) - min(best), sorted(best)[len(best) // 2]
    expected = f"at most {APART:g} s between nodes"
    if apart <= APART:
        return passed(f"{apart * 1e3:.1f} ms", expected)
    off = [one for one, moment in zip(seen, best, strict=True) if abs(moment - middle) > APART / 2]
    fix = "records compare times: have NTP set right (`chronyc tracking`, `timedatectl`)"
    return failed(f"{apart:.1f} s apart", expected, fix, places(off))
