"""Chapter 03, executed: on the committed rehearsal it comes to its conclusions, on a small study it says what is not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.publish import exports
from hpc_utils.records import packed

CHAPTER = "03_scaling"
EXECUTE = """
import json, sys
from pathlib import Path
from hpc_utils.publish.chapters import execute
execute(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
"""
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


@pytest.fixture
def executed(tmp_path: Path):
    def execute_on(results: Path, chapter: str = CHAPTER, **parameters: object) -> tuple[str, set[str]]:
        """What the chapter says of a copy of `results`, and which figures it draws."""
        shutil.copytree(results, tmp_path / "results", ignore=shutil.ignore_patterns(*MADE))
        output = tmp_path / "out.ipynb"
        notebook = paths.notebooks() / f"{chapter}.ipynb"
        command = [sys.executable, "-c", EXECUTE, notebook, output, json.dumps(parameters)]
        environment = os.environ | {"HPC_RESULTS": str(tmp_path / "results")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 0, done.stderr[-3000:]
        return said(output), {path.stem for path in (tmp_path / "results/figures").glob("*.pdf")}

    return execute_on


def test_the_rehearsal_predicts_ranks_and_links_that_the_model_has_not_seen(executed, tmp_path):
    text, figures = executed(REHEARSAL)
    found = exports.read(tmp_path / "results")
    off = found.frame("scaling-model-accuracy").set_index("points").loc["held out"]
    assert off.median_error < 0.05 and off.worst_error < 0.25
    assert f"median error of {off.median_error:.1%}" in text
    assert {"scaling-model", "scaling-reach", "scaling-parts", "scaling-allreduce"} <= figures
    assert figures == set(found.figures) and all(one.data for one in found.figures.values())
    assert found.frame("scaling-reach").extrapolation.notna().any()
    kept = exports.read(REHEARSAL)
    assert set(found.tables) == set(kept.tables), "what texts cite"
    assert all(one.units == kept.tables[name].units for name, one in found.tables.items())


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


@pytest.mark.soak
def test_a_study_of_one_machine_states_what_is_not_there(executed, tmp_path):
    text, figures = executed(LAPTOP, study="laptop")
    assert "hpc bench allreduce" in text and "hpc bench storage" in text
    found = exports.read(tmp_path / "results")
    assert not {"laptop-scaling-links", "laptop-scaling-storage", "laptop-scaling-model-errors"} & set(found.tables)
    targets = found.frame("laptop-scaling-targets")
    assert "not measured" in set(targets.verdict), "the target on 8 devices"
    assert {"laptop-scaling-efficiency", "laptop-scaling-times", "laptop-scaling-reach"} <= figures
