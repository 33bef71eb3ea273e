"""Chapter 03, executed: on the committed rehearsal it comes to its conclusions, on a small study it says what is not there."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from hpc_utils import paths, workspace
from hpc_utils.launch.parameters import options
from hpc_utils.publish import exports
from hpc_utils.publish.report import write_report
from hpc_utils.publish.report.head import Head
from hpc_utils.records import StudyIndex, packed
from tests.launch.conftest import HPC

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
HEAD = Head(StudyIndex(runs=[]), {}, (), (), ())
HANG = 400  # s; it takes some 20 s, chapter 12 some 90 s
MADE = ("figures", "notebooks", "tables", "exports")  # what chapters made of a set
REHEARSAL = paths.root() / "results/reference/rehearsal"
LAPTOP = paths.root() / "results/reference/epyc-2core"


def said(notebook: Path) -> str:
    """All text that the cells put out."""
    cells = json.loads(notebook.read_text())["cells"]
    parts = [output for cell in cells for output in cell.get("outputs", ())]
    texts = [output.get("text") or output.get("data", {}).get("text/markdown") for output in parts]
    return "\n".join("".join(text) for text in texts if text)


def hpc(folder: Path, results: Path, *arguments: str) -> str:
    """What `hpc` prints, called in a folder, which must succeed."""
    environment = workspace.child_environment()
    environment |= {"HPC_RESULTS": str(results), "HPC_SHARED": ""}  # figures are drawn of these runs
    # A temporary folder of its own has the lock of the cores: no other test's runs are waited for.
    with tempfile.TemporaryDirectory(prefix="hpc-") as own:
        done = subprocess.run(
            [*HPC, *arguments],
            cwd=folder,
            env=environment | {"TMPDIR": own},
            capture_output=True,
            text=True,
            timeout=HANG,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def executed(tmp_path: Path):
    def execute_on(results: Path, chapter: str = CHAPTER, **parameters: object) -> tuple[str, set[str]]:
        """What the chapter says of a copy of `results`, and which figures it draws."""
        copy = tmp_path / "results"
        shutil.copytree(results, copy, ignore=shutil.ignore_patterns(*MADE), dirs_exist_ok=True)
        *_, output = hpc(tmp_path, copy, "chapter", chapter, *options(parameters)).splitlines()
        return said(Path(output)), {path.stem for path in (copy / "figures").glob("*.pdf")}

    return execute_on


def test_the_rehearsal_predicts_ranks_and_links_that_the_model_has_not_seen(executed, tmp_path):
    text, figures = executed(REHEARSAL)
    found = exports.read(tmp_path / "results")
    off = found.frame("scaling-model-accuracy").set_index("points").loc["held out"]
    assert off.median_error < 0.05 and off.worst_error < 0.25
    assert f"median error of {off.median_error:.1%}" in text
    assert {"scaling-model", "scaling-reach", "scaling-parts", "scaling-allreduce", "scaling-ceiling"} <= figures
    lost = found.frame("scaling-ceiling")
    assert (
        lost.small_batches + lost.communication + lost.efficiency - 1
    ).abs().max() < 1e-9 and lost.ceiling.min() > 0.4
    assert figures == set(found.figures) and all(one.data for one in found.figures.values())
    assert found.frame("scaling-reach").extrapolation.notna().any()
    kept = exports.read(REHEARSAL)
    assert set(found.tables) == set(kept.tables), "what texts cite"
    assert all(kept.tables[name].units.items() <= one.units.items() for name, one in found.tables.items())


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
    advice = exports.read(tmp_path / "results").frame("scaling-advice")
    assert advice.which[advice.purpose == "production"].nunique() == 2


@pytest.mark.soak  # tests/test_readme.py has an own workload, tests/analyze other baselines
def test_an_own_workload_without_a_baseline_is_judged_against_ddp_on_one_rank(executed, tmp_path):
    (tmp_path / "my_own.py").write_text(OWN)
    (tmp_path / "own.toml").write_text(STUDY)
    hpc(tmp_path, tmp_path / "raw", "study", "run", "./own.toml", "--no-report")
    for chapter, label, metric in (
        (CHAPTER, "own-scaling", set()),
        ("06_paper_figures", "own", {"own-absolute-error"}),
    ):
        text, figures = executed(tmp_path / "raw", chapter, study="own")
        assert {f"{label}-efficiency", *metric} <= figures
        conclusion = next(line for line in text.splitlines() if line.startswith("- strong scaling"))
        assert "**not measured**" not in conclusion and "DDP on one rank" in conclusion
        found = exports.read(tmp_path / "results")
        assert set(found.frame(f"{label}-targets").baseline.dropna()) == {"ddp"}
        assert set(found.frame(f"{label}-learned").metric) == {"test_absolute_error"}
        assert "evaluate_every" not in text and " on ," not in text
        if chapter == CHAPTER:
            notebook = tmp_path / f"results/notebooks/own/{CHAPTER}.ipynb"
            assert (
                set(found.frame("own-scaling-points").world_size)
                == {1, 2}
                == {*found.frame("own-scaling-targets").ranks, 1}
            )
            page = BeautifulSoup(write_report([notebook], tmp_path / "index.html", HEAD).read_text(), "html.parser")
            headings = {one.get_text() for one in page.select("article h3, article h4")}
            assert "hpc submit" in text and not any(
                "hpc submit" in one.get_text() for one in page.select("article .output")
            )
            assert {"The targets", "The performance model"} <= headings and not {"The link", "The storage"} & headings
    if "own-scaling-reach" in found.tables:  # not, if the repeats differ much
        reach = found.frame("own-scaling-reach")
        assert set(reach.baseline) == {"ddp"} and set(reach.nodes) == {1} and reach.batch_per_device.max() == 64
    assert found.frame("own-scaling-advice").which.unique().tolist() == ["my_own:line"]


@pytest.mark.soak
def test_a_study_of_one_machine_states_what_is_not_there(executed, tmp_path):
    text, figures = executed(LAPTOP, study="laptop")
    assert "hpc bench allreduce" in text and "hpc bench storage" in text
    assert "hpc bench compute -p workload=cnn -p optimizer=adamw" in text and "--batches 256,512" in text
    found = exports.read(tmp_path / "results")
    assert not {"laptop-scaling-links", "laptop-scaling-storage", "laptop-scaling-model-errors"} & set(found.tables)
    targets = found.frame("laptop-scaling-targets")
    assert set(targets.at_ranks) == {2} and "not measured" not in set(targets.verdict)
    assert {"laptop-scaling-efficiency", "laptop-scaling-times"} <= figures
