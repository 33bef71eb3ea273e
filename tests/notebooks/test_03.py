"""Chapter 03, executed: on the committed rehearsal it comes to its conclusions, on a small study it says what is not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpc_utils import paths

CHAPTER = "03_scaling"
EXECUTE = """
import json, sys
from pathlib import Path
from hpc_utils.publish.chapters import execute
execute(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
"""
HANG = 240  # s; it takes some 20 s
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
        shutil.copytree(results, tmp_path / "results", ignore=shutil.ignore_patterns("figures", "notebooks"))
        output = tmp_path / "out.ipynb"
        notebook = paths.notebooks() / f"{chapter}.ipynb"
        command = [sys.executable, "-c", EXECUTE, notebook, output, json.dumps(parameters)]
        environment = os.environ | {"HPC_RESULTS": str(tmp_path / "results")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 0, done.stderr[-3000:]
        return said(output), {path.stem for path in (tmp_path / "results/figures").glob("*.pdf")}

    return execute_on


def test_the_rehearsal_predicts_links_that_the_model_has_not_seen(executed):
    text, figures = executed(REHEARSAL)
    median, worst = map(float, re.search(r"median error ([\d.]+)%, worst ([\d.]+)%", text).groups())
    assert median < 5 and worst < 10
    assert {"scaling-model", "scaling-reach", "scaling-parts", "scaling-allreduce", "scaling-emulated"} <= figures
    assert "extrapolation" in text


@pytest.mark.soak
def test_a_study_of_one_machine_says_what_is_not_there(executed):
    text, figures = executed(LAPTOP, study="laptop")
    for missing in ("No link was measured", "No storage was measured", "No emulated runs", "No links were limited"):
        assert missing in text
    assert "not measured" in text  # the target on 8 devices
    assert {"laptop-efficiency", "laptop-times", "laptop-reach"} <= figures
