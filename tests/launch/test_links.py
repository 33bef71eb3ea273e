"""`link_gbit` where there are no links to limit, and where links are limited by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.cli.common import run_links
from hpc_utils.config import ConfigError
from hpc_utils.launch import cluster
from hpc_utils.launch import study as studies
from hpc_utils.launch.request import prepare
from hpc_utils.launch.target import Target
from hpc_utils.paths import notebooks
from hpc_utils.train import train

STUDY = """
title = "T"
[parameters]
workload = "cnn"
[[series]]
name = "links"
notebook = "02_ddp"
ranks = [2]
matrix = { link_gbit = ["none", 1, 0.3] }
"""


def test_a_machine_has_no_links_to_limit(results: Path) -> None:
    request = prepare(notebooks() / "02_ddp.ipynb", {"link_gbit": 1})
    with pytest.raises(ConfigError, match="--cluster rehearsal"), run_links(request, on_nodes=False):
        pass
    with pytest.raises(ConfigError, match="limits the links"):
        train(request.config)


def test_links_are_limited_on_nodes_of_a_rehearsal_alone(results: Path, tmp_path: Path) -> None:
    """... where ranks between which a link is measured lie on nodes of their own, however many would fit on one."""
    together, apart = tmp_path / "together.toml", tmp_path / "apart.toml"
    together.write_text(STUDY)
    apart.write_text(STUDY.replace("ranks = [2]", "ranks = [2]\nranks_per_node = 1"))

    def rates(study: Path, target: Target) -> tuple[list, list]:
        """Those that are planned, and those that are not applicable."""
        plan = studies.plan(str(study), target)
        return [point.request.config.link_gbit for point in plan.points], plan.not_applicable

    roomy = Target("h", ranks_per_node=4, most_nodes=2, fixed_links="")
    assert rates(apart, roomy) == ([None, 1, 0.3], [])
    assert {str(request.layout) for request in studies.plan(str(apart), roomy).requests} == {"2x1"}
    assert rates(together, Target("h", ranks_per_node=1, fixed_links="")) == ([None, 1, 0.3], [])
    for target, why in ((Target.here(), "a rehearsal cluster's can be limited"), (roomy, "ranks_per_node = 1")):
        planned, missing = rates(together, target)
        assert planned == [None] and [point.values["link_gbit"] for point in missing] == [1, 0.3]
        assert why in missing[0].why
    assert rates(apart, Target.here())[0] == [], "this machine alone has no second node"


def test_links_limited_by_hand_are_part_of_the_hardwares_name() -> None:
    rehearsal = cluster.read_cluster("rehearsal").rehearsed(links="")
    plain = rehearsal.hardware_id()
    by_hand = rehearsal.rehearsed(links="2.5gbit")
    assert by_hand.hardware_id() == f"{plain}-2.5gbit"
