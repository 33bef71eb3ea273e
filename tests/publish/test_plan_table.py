"""`hpc plan` and the table that it prints, on a cluster that is not here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from hpc_utils import datasets, provenance
from hpc_utils.analyze import budget
from hpc_utils.cli import main
from hpc_utils.launch import cluster as clusters
from hpc_utils.launch import study as studies
from hpc_utils.launch.target import Target
from hpc_utils.records import load

REFERENCE = Path(__file__).resolve().parents[2] / "results/reference/epyc-2core"
STUDY = """
title = "Tiny"
repeats = 2
[parameters]
workload = "resnet18"
dataset = "cifar10"
epochs = 3
evaluate_every = 2
[[series]]
name = "strong"
notebook = "02_ddp"
ranks = [1, 8, 16]
parameters = { global_batch = 256 }
matrix = { precision = ["fp32", "tf32"] }
"""


@pytest.fixture
def study(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HPC_DATA", str(tmp_path / "no data here"))
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY)
    return str(path)


def hpc_plan(*arguments: str) -> tuple[str, str]:
    done = CliRunner().invoke(main, ["plan", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_a_plan_needs_neither_slurm_nor_data_nor_the_cluster(study: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    said, _ = hpc_plan(study, "--cluster", "lumi-g", "--throughput", "14", "--markdown", "--csv", str(file))
    row = next(line for line in said.splitlines() if "| strong | 1 x 8 |" in line)
    assert "| 2 (2 repeats) |" in row and "| stated" in row
    assert "| strong | 2 x 8 |" in said and "| Total |" in said
    assert "may exceed the time limit of 1:00:00" in said
    assert "- 3 not applicable: strong: tf32 on lumi-g-gpu" in said
    table = pd.read_csv(file)
    assert table.runs.tolist() == [2, 2, 2] and (table.cost / table.node_hours).round(6).tolist() == [4, 4, 4]


def test_without_any_basis_the_limit_bounds_and_what_to_do_is_reported(study: str) -> None:
    said, hint = hpc_plan(study, "--cluster", "lumi-g", "--nodes-of", "small")
    assert "1 [0, 1]" in said and "time limit: nothing is known" in said and "--throughput" in hint
    assert "0.5 [" not in said and "1 [0, 1]  " in said, (
        "one GCD of eight, two runs of an hour at most, 4 GPU-hours a node"
    )


def test_a_like_gpu_stands_in_where_nothing_ran(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(REFERENCE.parent / "epyc-avx512"))  # where operations were counted
    said, hint = hpc_plan(study, "--cluster", "leonardo", "--like", "A100 40GB")
    rows = [line for line in said.splitlines() if line.startswith("strong")]
    assert rows and all(row.endswith("operations") for row in rows)
    assert "a step is allowed 20%, between 2% and 60%" in said and "The like device is A100 40GB: NVIDIA" in said
    assert not hint, "nothing rests on a time limit"


@pytest.mark.parametrize(("basis", "why"), [([], "no run"), (["--throughput", "2500"], "better")])
def test_a_like_gpu_without_effect_is_explained(study: str, basis: list[str], why: str) -> None:
    _, hint = hpc_plan(study, "--cluster", "leonardo", "--like", "A100 40GB", *basis)
    assert "--like has no effect" in hint and why in hint


@pytest.mark.parametrize(("steps", "basis"), [("steps_per_epoch = 10", "stated"), ("", "time limit")])
def test_a_throughput_is_the_basis_of_an_own_workload_whose_steps_are_known(
    study: str, steps: str, basis: str
) -> None:
    own = STUDY.replace('"resnet18"', '"tests.train.stacked:make"').replace('dataset = "cifar10"', steps)
    Path(study).write_text(own)
    said, hint = hpc_plan(study, "--cluster", "leonardo", "--throughput", "2500")
    rows = [line for line in said.splitlines() if line.startswith("strong")]
    assert rows and all(row.endswith(basis) for row in rows)
    assert ("--throughput has no effect" in hint and "steps_per_epoch" in hint) == (not steps)


def test_a_study_of_which_nothing_can_run_gives_the_reason(study: str) -> None:
    Path(study).write_text(STUDY.replace('"fp32", ', ""))
    done = CliRunner().invoke(main, ["plan", study, "--cluster", "lumi-g"])
    assert done.exit_code == 2
    assert "no run is possible on LUMI-G: 3 not applicable: strong: tf32" in done.stderr


def test_points_say_what_a_run_will_do_by_the_catalogue(study: str) -> None:
    plan = studies.plan(study, Target("h", ranks_per_node=8), needs_data=False)
    one = next(entry for entry in studies.forecast(plan) if entry["world_size"] == 16)
    assert (one["steps"], one["epochs"], one["evaluations"], one["test_samples"]) == (50000 // 256, 3, 2, 10000)
    assert (one["nodes"], one["ranks_per_node"], one["batch_per_device"]) == (2, 8, 16)
    with pytest.raises(datasets.DataError, match="cifar10"):
        studies.plan(study, Target("h", ranks_per_node=8))


def test_what_was_trained_is_found_again_by_what_was_planned(tmp_path: Path, results: Path) -> None:
    from hpc_utils.train import train

    path = tmp_path / "one.toml"
    path.write_text("""
        title = "One"
        [parameters]
        workload = "cnn"
        device = "cpu"
        parallel = "none"
        epochs = 1
        steps_per_epoch = 1
        global_batch = 8
        evaluate_every = 0
        [[series]]
        name = "one"
        notebook = "01_baseline"
        ranks = [1]
    """)
    plan = studies.plan(str(path), Target(provenance.hardware_id()))
    train(plan.requests[0].config)
    known = load()
    assert budget.estimate(studies.forecast(plan), known.runs, known.epochs, limit=60).basis.tolist() == ["measured"]


def test_a_rehearsal_costs_the_same_over_any_link(results: Path) -> None:
    plain, limited = "rehearsal-cpu-0123abcd", "rehearsal-cpu-89abcdef-300mbit"
    asked = [plain, limited, "leonardo-gpu", "lumi-g-gpu", "gone-cpu-0123abcd-1gbit", "0123abcd"]
    prices = clusters.prices(asked)
    assert {hardware: node.name for hardware, node in prices.items()} == {
        plain: "cpu", limited: "cpu", "leonardo-gpu": "gpu", "lumi-g-gpu": "gpu"
    }  # fmt: skip
    assert prices["lumi-g-gpu"].cost(2, 1, 1.0) == 8
    gbits = clusters.link_gbits(asked)
    assert (gbits[limited], gbits["gone-cpu-0123abcd-1gbit"]) == (0.3, 1.0)
    assert gbits["leonardo-gpu"] == clusters.read_cluster("leonardo").network.link_gbit
