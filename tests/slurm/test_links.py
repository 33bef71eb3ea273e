"""Runs over links that are limited for them."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils import records
from hpc_utils.cli.common import run_links
from hpc_utils.config import ConfigError
from hpc_utils.launch.request import Layout, prepare
from hpc_utils.paths import notebooks
from hpc_utils.rehearsal import Cluster

from .conftest import Desk

STUDY = """
title = "Limited links"
repeats = 3
[parameters]
workload = "cnn"
batch_per_device = 8
[[series]]
name = "weak"
notebook = "02_ddp"
ranks = [2, 4]
ranks_per_node = 1
matrix = { link_gbit = [10, 0.3] }
"""
PARAMETERS = {"workload": "cnn", "steps_per_epoch": 3, "warmup_steps": 1, "epochs": 1, "evaluate_every": 0}


@pytest.mark.soak  # tests/rehearsal measures limited links
def test_a_runs_links_are_limited_while_it_is_measured(desk: Desk) -> None:
    """... and as before afterwards."""
    cluster = desk.cluster
    cluster.shape("500mbit")
    try:
        job = desk.submit_training(parameters=PARAMETERS | {"link_gbit": 0.01})
        desk.wait(lambda: cluster.status().held)
        assert cluster.status().rate == "10mbit"
        desk.wait_for(job, "COMPLETED", "FAILED")
        desk.wait(lambda: cluster.status().rate == "500mbit")
    finally:
        cluster.shape(None)
    (run,) = records.load(desk.results).runs.itertuples()
    assert run.link_gbit == 0.01
    assert run.step_p50 > 0.5 * 4 * run.parameters * 8 / 0.01e9, "each node sends all gradients once a step"


def test_a_plan_holds_the_points_whose_links_are_limited(desk: Desk) -> None:
    study = desk.folder / "limited.toml"
    study.write_text(STUDY)
    said = desk.hpc("plan", study, "--cluster", "rehearsal", "--csv", desk.folder / "rows.csv")
    (absent,) = (line for line in said.stdout.splitlines() if "not applicable" in line)
    assert "at most 2 on" in absent, "two nodes hold no 4"
    assert pd.read_csv(desk.folder / "rows.csv").runs.sum() == 3 * 2


@pytest.mark.parametrize(
    ("rate", "hardware", "gbit", "words"),
    [
        ("500mbit", "rehearsal-cpu-0123abcd", None, "--rate none"),
        ("500mbit", "rehearsal-cpu-0123abcd-500mbit", 0.1, "--rate none"),
        ("1gbit", "rehearsal-cpu-0123abcd-1gbit", None, ""),
    ],
)
def test_a_run_begins_over_the_links_that_its_id_names(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, rate: str, hardware: str, gbit: float | None, words: str
) -> None:
    for name, value in (cluster.environment() | {"SLURM_JOB_ID": "1", "HPC_CLUSTER": hardware}).items():
        monkeypatch.setenv(name, value)
    request = prepare(notebooks() / "02_ddp.ipynb", PARAMETERS | {"link_gbit": gbit}, Layout(2, 1))
    cluster.shape(rate)
    try:
        if words:
            with pytest.raises(ConfigError, match=words), run_links(request, on_nodes=True):
                pass
        else:
            with run_links(request, on_nodes=True):
                assert cluster.status().held == [request.run_id]
    finally:
        while cluster.status().held:
            pass
        cluster.shape(None)
