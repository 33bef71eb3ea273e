"""The interactive chapter, executed whole: by the report's engine, and by a Jupyter kernel on two Slurm nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import NotebookNode

from hpc_utils import paths
from hpc_utils.launch.slurm_commands import clean_environment
from hpc_utils.rehearsal import Cluster
from hpc_utils.workspace import Launch

CHAPTER = "02b_ddp_interactive"
HANG = 150  # s; it takes some 15 s on two idle cores
REPORT = """
import sys
from pathlib import Path
from hpc_utils.publish.chapters import execute
execute(Path(sys.argv[1]), Path(sys.argv[2]), study="laptop")
"""
JUPYTER = """
import sys
import papermill
options = {"engines": 2, "where": "slurm", "sbatch_options": ["--nodes=2"]}
papermill.execute_notebook(sys.argv[1], sys.argv[2], options, kernel_name="python3", progress_bar=False)
"""


def executed(how: str, folder: Path, environment: dict[str, str]) -> NotebookNode:
    """The chapter with its outputs; fails if it fails, hangs, or leaves a process behind."""
    output = folder / "out.ipynb"
    command = [sys.executable, "-c", how, str(paths.notebooks() / f"{CHAPTER}.ipynb"), str(output)]
    ours = {"HPC_RESULTS": str(folder / "results"), "TMPDIR": str(folder)}
    done = subprocess.run(command, env=environment | ours, cwd=folder, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not [
        process for process in psutil.process_iter() if str(folder) in Launch.of(environment_of(process)).owner
    ]
    assert not list(folder.glob("hpc-engines-*"))
    assert not list((folder / "results").glob(".engines-*"))
    return nbformat.read(output, as_version=4)


def environment_of(process: psutil.Process) -> dict[str, str]:
    try:
        return {} if process.status() == psutil.STATUS_ZOMBIE else process.environ()
    except (psutil.Error, OSError):
        return {}


def shown(notebook: NotebookNode) -> str:
    """All that its cells show as text."""
    text = ""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        assert output.output_type != "error"
        data = output.get("data", {})
        text += output.get("text", "") or data.get("text/markdown", "") or data.get("text/plain", "")
    return text


def check(notebook: NotebookNode) -> str:
    """What a reader must see, on whatever machine; all of its text."""
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 3
    text = shown(notebook)
    assert "**the same bits**" in text
    left = float(re.search(r"by at most \*\*(\S+)\*\*", text)[1])
    assert left < 1e-6, "the average of the slices' gradients is the whole batch's"
    assert float(re.search(r"differ by up to (\S+)\. ", text)[1]) > 1e3 * left, "before, they differed"
    assert "ValueError: this rank found no data" in text
    assert "RuntimeError: " in text, "the other rank was freed"
    assert "[tensor([2.]), tensor([2.])]" in text, "the group was made anew"
    return text


@pytest.mark.soak  # tests/interactive has engines in CI
@pytest.mark.timeout(HANG + 60)
def test_the_report_executes_it_on_two_local_engines(tmp_path: Path) -> None:
    check(executed(REPORT, tmp_path, clean_environment()))


@pytest.mark.soak  # tests/interactive has engines on Slurm's nodes in CI
@pytest.mark.timeout(HANG + 60)
def test_a_jupyter_kernel_executes_it_on_two_slurm_nodes(tmp_path: Path, cluster: Cluster) -> None:
    text = check(executed(JUPYTER, tmp_path, clean_environment() | cluster.environment()))
    if not cluster.flat:
        assert "node1" in text
        assert "node2" in text
