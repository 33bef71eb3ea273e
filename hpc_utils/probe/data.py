"""The data sets that are here: compute nodes need no internet, but the data."""

from __future__ import annotations

from collections.abc import Sequence

from hpc_utils import datasets

from .bench import Bench
from .check import Check, Facts, Seen, failed, passed, places, unknown

EXPECTED = "data sets fetched before, seen by every node"


def is_here(name: str) -> bool:
    """Whether the data set can be opened on this node."""
    try:
        datasets.load(name, "train")
    except (datasets.DataError, OSError, ImportError):
        return False
    return True


def look(bench: Bench) -> Facts:
    """Which data sets are here."""
    return {"here": list(filter(is_here, datasets.DATASETS))}


def judge(seen: Sequence[Seen]) -> Check:
    """All nodes' data sets side by side."""
    somewhere = sorted({name for one in seen for name in one.facts["here"]})
    for name in somewhere:
        lacking = [one for one in seen if name not in one.facts["here"]]
        if lacking:
            fix = "set HPC_DATA to a folder that all nodes see, or stage the data to every node's disk"
            return failed(f"{name} is not on every node", EXPECTED, fix, places(lacking))
    if not somewhere:
        return unknown("no data set", EXPECTED, "hpc data fetch cifar10 (on a node with internet)")
    return passed(", ".join(somewhere), EXPECTED)
