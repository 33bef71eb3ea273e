"""`hpc plan` and the table that it prints, on a cluster that is not here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from hpc_utils import datasets, provenance
from hpc_utils.analyze import budget
from hpc_utils.analyze.profiles import peaks
from hpc_utils.cli import main
from hpc_utils.launch import cluster as clusters
from hpc_utils.launch import study as studies
from hpc_utils.launch.target import Target
from hpc_utils.publish import plan_table
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
    said, _ = hpc_plan(study, "--cluster", "lumi-g", "--seconds-per-epoch", "3600", "--markdown", "--csv", str(file))
    lines = said.splitlines()
    assert lines[0] == "*Tiny on LUMI-G (gpu): expected [low, high]*"
    assert "Cost (GPU-hours)" in lines[2] and len({line.count("|") for line in lines[2:8]}) == 1
    row = next(line for line in lines if "| strong | 1 x 8 |" in line)
    assert "| 2 (2 repeats) |" in row and "| stated" in row
    assert "| strong | 2 x 8 |" in said and "| Total |" in said
    assert "may exceed the time limit of 1:00:00" in said
    assert "- 3 not applicable: strong: tf32 on lumi-g-gpu" in said
    table = pd.read_csv(file)
    assert table.runs.tolist() == [2, 2, 2] and (table.cost / table.node_hours).round(6).tolist() == [4, 4, 4]


def test_without_any_basis_the_limit_bounds_and_what_to_do_is_reported(study: str) -> None:
    said, hint = hpc_plan(study, "--cluster", "lumi-g", "--nodes-of", "small")
    assert "1 [0, 1]" in said and "time limit: nothing is known" in said and "--seconds-per-epoch" in hint
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


def test_the_notes_explain_the_bases_of_the_table() -> None:
    notes = plan_table.table_notes(pd.DataFrame([{"basis": "operations"}]), peaks.find_peak("A100 40GB"))
    assert notes[0].startswith("operations: ") and notes[-1].startswith("The like device is A100 40GB")


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


def test_real_runs_stand_for_the_same_points_and_bound_others(results: Path) -> None:
    """Those of the laptop study, on two cores."""
    points = studies.forecast(studies.plan("laptop", Target("e1e47895", ranks=(1, 2, 4)), needs_data=False))
    known = load(REFERENCE)
    runs = known.runs.assign(settings=points[0]["settings"])  # whatever knobs came since
    found = budget.estimate(points, runs, known.epochs, limit=3600)
    bases = found.groupby("world_size").basis.agg(set).to_dict()
    assert bases == {1: {"measured"}, 2: {"measured"}, 4: {"scaled"}}
    strong = found[(found.series == "strong") & (found.precision == "fp32")].set_index("world_size")
    spent = strong.seconds - strong.start
    assert 3 < spent[1] < 5 and 2 < spent[2] < 3
    assert strong.seconds_low[4] - budget.START[1] == pytest.approx(spent[2] / 2, rel=0.1)


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
    asked = [plain, limited, "leonardo-gpu", "gone-cpu-0123abcd-1gbit", "0123abcd"]
    assert {one: node.name for one, node in clusters.prices(asked).items()} == {
        plain: "cpu", limited: "cpu", "leonardo-gpu": "gpu"
    }  # fmt: skip
    gbits = clusters.link_gbits(asked)
    assert gbits == {"leonardo-gpu": clusters.read_cluster("leonardo").network.link_gbit} | {
        limited: 0.3, "gone-cpu-0123abcd-1gbit": 1.0
    }  # fmt: skip


def test_every_cluster_s_nodes_have_a_price(results: Path) -> None:
    prices = clusters.prices(["lumi-g-gpu", "lumi-g-small", "leonardo-gpu", "university-ib-v100"])
    assert prices["lumi-g-gpu"].cost(2, 1, 1.0) == 8 and prices["lumi-g-small"].cost(1, 4, 1.0) == 2
    assert len(prices) == 4
