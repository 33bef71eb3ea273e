"""Each node's share of the machine."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from hpc_utils import provenance
from hpc_utils.cli.cluster import cluster_up
from hpc_utils.rehearsal import plan
from hpc_utils.rehearsal.plan import shares

TWO_THREADED = [[0, 4], [1, 5], [2, 6], [3, 7]]


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


@pytest.mark.parametrize(
    ("nodes", "share", "node_cores", "oversubscribed"),
    [
        (2, None, None, False),
        (3, None, 0.45, True),
        (3, 0.5, 0.45, True),  # two of them on one core
        (12, 0.14, 0.14, False),  # 1.68 of 1.8 cores
        (12, 0.16, 0.15, True),
        (1, 0.5, 0.5, False),
    ],
)
def test_a_node_knows_how_much_of_a_core_is_its_own(
    monkeypatch: pytest.MonkeyPatch, nodes: int, share: float | None, node_cores: float | None, oversubscribed: bool
) -> None:
    monkeypatch.setattr(provenance, "core_groups", lambda: [[0], [1]])
    drawn = plan.draw(Path("/of/cluster"), nodes=nodes, cpus=8, gpus=0, share=share, subnet=1)
    assert (drawn.node_cores, drawn.oversubscribed) == (pytest.approx(node_cores), oversubscribed)
    command = cluster_up.make_context("up", shlex.split(drawn.command)[3:])
    assert command.params == {"name": "rehearsal", "nodes": nodes, "cpus": 8, "gpus": 0, "cores_per_node": share}
