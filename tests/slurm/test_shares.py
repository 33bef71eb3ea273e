"""A rehearsal whose nodes are shares of a core: what is submitted there computes on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpc_utils import device_share, records, rehearsal
from hpc_utils.records.folder import read_json

from .conftest import Desk

STUDY = """
title = "Three shares"
[parameters]
workload = "cnn"
steps_per_epoch = 4
epochs = 1
lr_warmup_epochs = 0
evaluate_every = 0
warmup_steps = 1
batch_per_device = 256
[[series]]
name = "weak"
notebook = "02_ddp"
ranks = [3]
"""


@pytest.fixture
def own_desk(tmp_path: Path) -> Iterator[Desk]:
    """On a cluster of its own."""
    if why := device_share.unavailable():
        pytest.skip(why)
    cluster = rehearsal.up(f"shares-{os.getpid()}", nodes=3, share=0.1, lasting=False)
    yield Desk(tmp_path, cluster)
    cluster.down()


@pytest.mark.soak
def test_each_node_is_its_share_and_one_process_warms_all(own_desk: Desk) -> None:
    study = own_desk.folder / "three.toml"
    study.write_text(STUDY)
    own_desk.hpc("submit", study, "--cluster", "rehearsal", "--wait")
    (path,) = own_desk.runs
    tables = records.load_run(path)
    run, ranks = tables["run"], tables["ranks"]
    assert (run["threads_per_rank"], run["share_period"], run["oversubscribed"]) == (0.1, 0.01, False)
    assert (run["world_size"], run["nodes"], read_json(path / "provenance.json")["start"]) == (3, 3, "cold")
    assert own_desk.cluster.flat or ranks.host.tolist() == list(own_desk.cluster.nodes)
    assert (ranks.throttled_seconds > 0).all() and (ranks.cpu_seconds < 0.14 * ranks.seconds).all()
