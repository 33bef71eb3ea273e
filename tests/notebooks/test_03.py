"""Chapter 03, executed: on the committed rehearsal it comes to its conclusions, on a small study it says what is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.publish import exports
from hpc_utils.records import packed

from .chapters import hpc

CHAPTER = "03_scaling"
OWN = """
import torch
from hpc_utils.train import Workload

def line():
    x = torch.randn(512, 8)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    error = {"absolute_error": lambda out, y: (out - y).abs().sum()}
    return Workload(lambda: torch.nn.Linear(8, 1), data, data, torch.nn.functional.mse_loss, error)
"""
STUDY = """
title = "No baseline"
repeats = 2
[parameters]
workload = "my_own:line"
lr = 0.001
[[series]]
name = "strong"
notebook = "02_ddp"
ranks = [1, 2]
parameters = { global_batch = 64 }
[targets]
strong_ranks = 2
"""
REHEARSAL = paths.root() / "results/reference/rehearsal"
LAPTOP = paths.root() / "results/reference/epyc-2core"


def test_the_rehearsal_loses_efficiency_to_small_batches_and_to_communication(executed, tmp_path):
    _, figures = executed(REHEARSAL)
    found = exports.read_exports(tmp_path / "results")
    lost = found.frame("scaling-ceiling")
    parts = lost.small_batches + lost.communication + lost.efficiency
    assert (parts - 1).abs().max() < 1e-9 and lost.ceiling.min() > 0.4
    assert "scaling-ceiling" in figures
    require_complete(found, figures, REHEARSAL, CHAPTER)


def require_complete(found: exports.Exports, figures: set[str], results: Path, chapter: str) -> None:
    """Every figure has data, and the tables are those of the committed set, which texts cite, in the same units."""
    assert figures == set(found.figures) and all(figure.data for figure in found.figures.values())
    kept = {name: item for name, item in exports.read_exports(results).tables.items() if item.page == chapter}
    assert set(found.tables) == set(kept)
    for name, table in found.tables.items():
        common = kept[name].units.keys() & table.units.keys()
        assert common and all(kept[name].units[column] == table.units[column] for column in common)


@pytest.mark.soak  # the test above executes the chapter
def test_the_same_runs_of_two_machines_stand_side_by_side(executed, tmp_path):
    """A laptop's study, and a cluster's of the same model, in one folder of results."""
    both = tmp_path / "both"
    for run in (run for run in packed.folders(LAPTOP) if "-fp32-" in run.name):
        for machine in ("", "-elsewhere"):
            copy = both / "runs" / f"{run.name}{machine}"
            packed.unpack(run, copy)
            for path in copy.glob("*.json"):
                content = json.loads(path.read_text())
                for key in ("hardware_id", "run_id"):
                    if isinstance(content, dict) and key in content:
                        content[key] += machine
                path.write_text(json.dumps(content))
    _, figures = executed(both)
    assert len([name for name in figures if "pareto" in name]) == 2
    advice = exports.read_exports(tmp_path / "results").frame("scaling-advice")
    assert advice.which[advice.purpose == "production"].nunique() == 2


@pytest.mark.soak  # tests/test_readme.py has an own workload, tests/analyze other baselines
def test_an_own_workload_without_a_baseline_is_judged_against_ddp_on_one_rank(executed, tmp_path):
    (tmp_path / "my_own.py").write_text(OWN)
    (tmp_path / "own.toml").write_text(STUDY)
    hpc(tmp_path, tmp_path / "raw", "study", "run", "./own.toml", "--no-report")
    text, figures = executed(tmp_path / "raw", CHAPTER, study="own")
    assert "own-scaling-efficiency" in figures and "hpc submit" in text and "evaluate_every" not in text
    conclusion = next(line for line in text.splitlines() if line.startswith("- strong scaling"))
    assert "**not measured**" not in conclusion and "DDP on one rank" in conclusion
    found = exports.read_exports(tmp_path / "results")
    assert set(found.frame("own-scaling-targets").baseline.dropna()) == {"ddp"}
    assert set(found.frame("own-scaling-learned").metric) == {"test_absolute_error"}
    assert found.frame("own-scaling-advice").which.unique().tolist() == ["my_own:line"]
    _, figures = executed(tmp_path / "raw", "06_paper_figures", study="own")
    assert {"own-efficiency", "own-absolute-error"} <= figures


@pytest.mark.soak
def test_a_study_of_one_machine_states_what_is_not_there(executed, tmp_path):
    text, figures = executed(LAPTOP, study="laptop")
    assert "hpc bench compute -p workload=cnn -p optimizer=adamw" in text and "--batches 256,512" in text
    found = exports.read_exports(tmp_path / "results")
    targets = found.frame("laptop-scaling-targets")
    assert set(targets.at_ranks) == {2} and "not measured" not in set(targets.verdict)
    assert {"laptop-scaling-efficiency", "laptop-scaling-times"} <= figures
