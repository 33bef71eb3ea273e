"""Which processors a node gets, so that what is measured on it is honest."""

from __future__ import annotations

import os
from pathlib import Path

TOPOLOGY = Path("/sys/devices/system/cpu")


def physical() -> list[tuple[int, ...]]:
    """The logical CPUs this process may use, grouped by physical core."""
    allowed = os.sched_getaffinity(0)
    return sorted({tuple(sorted(allowed & _siblings(cpu))) for cpu in allowed})


def shares(nodes: int, cores: list[tuple[int, ...]]) -> list[list[int]]:
    """The logical CPUs of each node: equally many whole cores, disjoint; round-robin where nodes outnumber cores."""
    each = len(cores) // nodes
    if not each:
        return [list(cores[node % len(cores)]) for node in range(nodes)]
    return [sorted(cpu for core in cores[node * each : (node + 1) * each] for cpu in core) for node in range(nodes)]


def _siblings(cpu: int) -> set[int]:
    try:
        text = (TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return {cpu}
    ends = (part.partition("-") for part in text.strip().split(","))
    return {one for first, _, last in ends for one in range(int(first), int(last or first) + 1)}
