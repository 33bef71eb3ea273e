"""`link_gbit` where there are no links to limit, and where links are limited by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import provenance
from hpc_utils.cli.links import held_for
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.launch import cluster, submit
from hpc_utils.launch import study as studies
from hpc_utils.launch.place import Place
from hpc_utils.launch.request import prepare
from hpc_utils.paths import notebooks
from hpc_utils.records.identity import measured
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
    with pytest.raises(ConfigError, match="--cluster rehearsal"), held_for(request, on_nodes=False):
        pass
    with pytest.raises(ConfigError, match="nobody has limited"):
        train(request.config)


def test_a_runs_links_are_not_named_twice(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_CLUSTER", "rehearsal-cpu-0123abcd-1gbit")
    request = prepare(notebooks() / "02_ddp.ipynb", {"link_gbit": 0.3})
    with pytest.raises(ConfigError, match="named for links of 1gbit"), held_for(request, on_nodes=True):
        pass


def test_a_study_says_where_links_cannot_be_limited(results: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(STUDY)
    here = studies.plan(str(tmp_path / "mine.toml"))
    assert [request.config.link_gbit for request in here.requests] == [None]
    assert [point.values["link_gbit"] for point in here.not_applicable] == [1, 0.3]
    assert "a rehearsal cluster's can be limited" in here.impossible[0]
    there = studies.plan(str(tmp_path / "mine.toml"), Place("h", ranks_per_node=1, fixed_links=""))
    assert [request.config.link_gbit for request in there.requests] == [None, 1, 0.3]
    assert len({request.run_id for request in there.requests}) == 3


def test_links_limited_by_hand_are_part_of_the_hardwares_name() -> None:
    rehearsal = cluster.read("rehearsal").linked("")
    plain = rehearsal.hardware_id()
    by_hand = rehearsal.linked("2.5gbit")
    assert by_hand.hardware_id() == f"{plain}-2.5gbit"
    assert (provenance.links_in(plain), provenance.links_in(by_hand.hardware_id())) == ("", "2.5gbit")
    reasons = [
        submit._fixed_links(one) for one in (rehearsal, by_hand, rehearsal.linked(None), cluster.read("lumi-g"))
    ]
    assert [bool(why) for why in reasons] == [False, True, True, True]
    assert "2.5gbit by hand" in reasons[1]


def test_a_run_that_says_nothing_of_links_keeps_its_id() -> None:
    assert "link_gbit" not in measured(RunConfig(), 2)
    assert measured(RunConfig(link_gbit=1), 2)["link_gbit"] == 1
