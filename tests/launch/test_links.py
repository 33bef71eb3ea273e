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


def test_a_study_states_where_links_cannot_be_limited(results: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY)
    here = studies.plan(str(tmp_path / "mine.toml"))
    assert [request.config.link_gbit for request in here.requests] == [None]
    assert [point.values["link_gbit"] for point in here.not_applicable] == [1, 0.3]
    assert "a rehearsal cluster's can be limited" in here.impossible[0]
    there = studies.plan(str(tmp_path / "mine.toml"), Target("h", ranks_per_node=1, fixed_links=""))
    assert [point.request.config.link_gbit for point in there.points] == [None, 1, 0.3]
    assert len({request.run_id for request in there.requests}) == 3


def test_ranks_between_which_a_link_is_measured_lie_on_nodes_of_their_own(results: Path, tmp_path: Path) -> None:
    """... however many would fit on one; this machine alone has no second node."""
    (tmp_path / "mine.toml").write_text(STUDY.replace("ranks = [2]", "ranks = [2]\nranks_per_node = 1"))
    (tmp_path / "together.toml").write_text(STUDY)
    roomy = Target("h", ranks_per_node=4, most_nodes=2, fixed_links="")
    apart = studies.plan(str(tmp_path / "mine.toml"), roomy)
    assert [str(request.layout) for request in apart.requests] == ["2x1"] * 3
    together = studies.plan(str(tmp_path / "together.toml"), roomy)
    assert [request.config.link_gbit for request in together.requests] == [None]
    assert [point.values["link_gbit"] for point in together.not_applicable] == [1, 0.3]
    assert "ranks_per_node = 1" in together.not_applicable[0].why
    here = studies.plan(str(tmp_path / "mine.toml"))
    assert not here.requests
    assert "need 2 nodes" in here.impossible[0]


def test_links_limited_by_hand_are_part_of_the_hardwares_name() -> None:
    rehearsal = cluster.read_cluster("rehearsal").rehearsed(links="")
    plain = rehearsal.hardware_id()
    by_hand = rehearsal.rehearsed(links="2.5gbit")
    assert by_hand.hardware_id() == f"{plain}-2.5gbit"
