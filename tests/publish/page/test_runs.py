"""Every run has a row, whatever became of it, with a link to its folder and what is known of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hpc_utils import records
from hpc_utils.publish.page.runs import Run, Runs, runs_of
from hpc_utils.records import RunFolder


def rows(results: Path, **kwargs) -> Runs:
    return runs_of(results, results / "report/index.html", records.load(results), **kwargs)


def cell(runs: Runs, run: Run, name: str) -> str:
    return run.cells[[column.name for column in runs.columns].index(name)]


def test_a_complete_run_is_told_in_its_study_s_order(result_set: Path) -> None:
    runs = rows(result_set)
    asked = json.loads((result_set / "studies/laptop.json").read_text())["runs"]
    assert [run.run_id for run in runs.rows] == list(dict.fromkeys(one["run_id"] for one in asked))
    assert runs.states() == {"complete": 24}
    run = next(run for run in runs.rows if run.run_id.startswith("cnn-digits-ddp2-bf16-b1024-r1"))
    told = {name: cell(runs, run, name) for name in ("state", "series", "workload", "parallel", "layout", "commit")}
    assert told == {
        "state": "complete", "series": "weak", "workload": "cnn on digits", "parallel": "ddp", "layout": "1 x 2",
        "commit": "b2de18d797",
    }  # fmt: skip
    row = records.load(result_set).runs.set_index("run_id").loc[run.run_id]
    assert cell(runs, run, "samples/s") == f"{row.throughput:,.0f}"
    assert runs.lacking == ["energy (kJ)", "job"]
    assert (result_set / "report" / run.folder).resolve() == result_set / "runs" / run.run_id
    assert run.facts["parameters", "optimizer"] == "adamw"
    assert run.facts["provenance", "versions.torch"] == "2.13.0+cpu"


def test_what_is_not_complete_says_why(result_set: Path) -> None:
    refused, failed, absent, damaged = sorted((result_set / "runs").iterdir())[:4]
    (refused / "ranks.csv").write_text("rank\n")
    RunFolder(failed).set_status("failed", "rank 1 raised <ValueError>")
    shutil.rmtree(absent)
    (damaged / "run.json").write_text("[")
    (damaged / "provenance.json").write_text("[1]")
    runs = rows(result_set)
    told = {run.run_id: run for run in runs.rows}
    assert runs.states() == {"complete": 20, "absent": 1, "failed": 1, "refused": 2}
    assert cell(runs, told[refused.name], "state") == "refused: 0 ranks left records, but the world size is 1"
    assert cell(runs, told[refused.name], "precision") == "bf16"
    assert cell(runs, told[failed.name], "state") == "failed: rank 1 raised <ValueError>"
    assert cell(runs, told[failed.name], "samples/s") == ""
    assert (cell(runs, told[absent.name], "state"), told[absent.name].folder) == ("absent", "")
    assert cell(runs, told[damaged.name], "state") == "refused: run.json is missing or not whole"


def test_only_the_runs_that_are_wanted_are_shown(result_set: Path) -> None:
    wanted = [path.name for path in (result_set / "runs").iterdir()][:2]
    assert {run.run_id for run in rows(result_set, wanted=wanted).rows} == set(wanted)


def test_with_several_studies_the_series_name_theirs(result_set: Path) -> None:
    shutil.copy(result_set / "studies/laptop.json", result_set / "studies/other.json")
    runs = rows(result_set)
    assert cell(runs, runs.rows[0], "series") == "laptop: baseline, other: baseline"


def test_a_folder_s_name_cannot_break_its_link(result_set: Path) -> None:
    (result_set / "runs" / 'a "b" #c?d%').mkdir()
    run = next(run for run in rows(result_set).rows if run.run_id.startswith("a "))
    assert run.folder == "../runs/a%20%22b%22%20%23c%3Fd%25/"


def test_a_set_without_runs_has_none(tmp_path: Path) -> None:
    assert rows(tmp_path).rows == []
