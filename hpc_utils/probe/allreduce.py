"""How fast all ranks add up a tensor, against what the link between nodes promises."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from hpc_utils.allreduce_cost import bandwidths

from . import interfaces
from .bench import Bench
from .check import Check, Facts, Seen, failed, hosts, not_applicable, passed, unknown
from .group import enter

MIB = 2**20
SIZES = (1, 4, 16, 64)  # MiB; a ResNet-18 has 45 MB of gradients
ENOUGH = 0.6  # of the nominal link
BUSY = 0.5  # of a processor, all of a rank's threads together, waiting for it included: then it is the limit
SLOW = (
    "compare with `iperf3` or `ib_write_bw` between two nodes; does another job use the link, is a cable or port "
    "at a lower rate (`ibstat`, `ethtool`), does the transport check above pass?"
)


def look(bench: Bench) -> Facts:
    """The mean time of an all-reduce on the slowest rank, for a few sizes."""
    import torch
    import torch.distributed as dist

    enter(bench)
    ranks = bench.ranks
    facts: Facts = {"ranks": bench.world, "nodes": bench.nodes, "backend": ranks.backend, "sizes": []}
    if bench.world == 1:
        return facts

    def slowest(tensor: torch.Tensor, times: int) -> float:
        ranks.barrier()
        began = time.perf_counter()
        for _ in range(times):
            dist.all_reduce(tensor)
        ranks.synchronize()
        mine = torch.tensor([(time.perf_counter() - began) / times], dtype=torch.float64)
        return float(ranks.max(mine))  # the same on all ranks, who so decide alike

    left = bench.share(0.6, 8.0)
    for size in SIZES:
        tensor = torch.zeros(size * MIB // 4, device=ranks.device)  # sums stay zero, however often
        once = slowest(tensor, 1)
        if 3 * once > left and facts["sizes"]:
            break
        again = max(1, min(20, int(min(1.0, left / 2) / once)))
        effort = _effort()
        seconds = slowest(tensor, again)
        facts["busy"] = None if effort is None else (_effort() - effort) / (again * seconds)
        facts["sizes"].append({"bytes": size * MIB, "seconds": seconds})
        left -= once + again * seconds
    return facts | {"link_gbit": bench.options.link_gbit or None, "links": _links(bench)}


def judge(seen: Sequence[Seen]) -> Check:
    """The largest size's bus bandwidth against the slowest node's links."""
    facts = seen[0].facts
    if facts["ranks"] == 1:
        return not_applicable("one rank has nothing to add up")
    largest = facts["sizes"][-1]
    algorithm, bus = bandwidths(largest["bytes"], largest["seconds"], facts["ranks"])
    gbit = bus * 8 / 1e9
    said = (
        f"{largest['bytes'] // MIB} MiB in {largest['seconds'] * 1e3:.1f} ms: algorithm {algorithm / 1e9:.2f} GB/s, "
        f"bus {bus / 1e9:.2f} GB/s ({gbit:.1f} Gbit/s)"
    )
    if facts["nodes"] == 1:
        return not_applicable(f"no link inside one node; {said}")
    nominal, source = _nominal(seen)
    if nominal is None:
        return unknown(
            f"{said}, on a link whose speed is not known", "", "say it: --link-gbit, or `network.link_gbit`"
        )
    expected = f"at least {ENOUGH:.0%} of {nominal:g} Gbit/s ({source})"
    if gbit >= ENOUGH * nominal:
        return passed(said, expected)
    if facts["backend"] == "gloo" and max(one.facts["busy"] or 0 for one in seen) > BUSY:
        fix = "gloo adds up on the CPU: give ranks cores of their own, or judge this link with NCCL"
        return unknown(f"{said}: the processor is the limit here, not the link", expected, fix)
    return failed(said, expected, SLOW)


def _effort() -> float | None:
    """Seconds that this process's threads were on a processor, or waited for one, so far; None where not told."""
    with contextlib.suppress(OSError, ValueError):
        told = [path.read_text().split() for path in Path("/proc/self/task").glob("*/schedstat")]
        return sum(int(running) + int(waiting) for running, waiting, _ in told) / 1e9 if told else None
    return None


def _links(bench: Bench) -> dict[str, float | None]:
    """{adapter or interface: nominal Gbit/s} that this rank talks to other nodes over."""
    ports = interfaces.active_ports()
    used = bench.carriers if bench.ranks.backend != "gloo" else interfaces.carrying()
    return {
        name: ports[name][0] if name in ports else interfaces.speed(name)
        for name in used
        if not interfaces.loopback([name])
    }


def _nominal(seen: Sequence[Seen]) -> tuple[float | None, str]:
    """What the slowest node's links add up to, and who says so."""
    if seen[0].facts["link_gbit"]:
        return seen[0].facts["link_gbit"], "--link-gbit"
    found: list[tuple[float, str]] = []
    for node in hosts(seen).values():
        links = {name: gbit for one in node for name, gbit in one.facts["links"].items()}
        if not links or None in links.values():
            return None, ""
        found.append((sum(links.values()), ", ".join(sorted(links))))
    return min(found)
