"""Each node's share of the machine."""

from __future__ import annotations

import pytest

from hpc_utils.rehearsal.cores import physical, shares

TWO_THREADED = [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (2, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        (3, [[0, 4], [1, 5], [2, 6]]),  # equal shares; a core is left over
        (5, [[0, 4], [1, 5], [2, 6], [3, 7], [0, 4]]),
    ],
)
def test_nodes_get_equally_many_whole_cores(nodes: int, expected: list[list[int]]) -> None:
    assert shares(nodes, TWO_THREADED) == expected


def test_cores_of_this_machine_are_disjoint_and_usable() -> None:
    import os

    found = [cpu for core in physical() for cpu in core]
    assert sorted(found) == sorted(os.sched_getaffinity(0))
