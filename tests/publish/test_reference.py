"""Every committed result set loads, with its chapters and figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_utils import paths, records
from hpc_utils.publish import exports

from .conftest import faults

SETS = sorted(path for path in (paths.root() / "results/reference").glob("*") if path.is_dir())


@pytest.mark.parametrize("folder", SETS, ids=lambda path: path.name)
def test_every_committed_set_can_be_true(folder: Path) -> None:
    found = records.load(folder)
    assert len(found.runs)
    assert not found.refused
    assert not found.unfinished
    studies = records.studies(folder)
    assert set().union(*(study.run_ids for study in studies)) <= set(found.runs.run_id)
    chapters = sorted(
        {chapter.notebook for study in studies for chapter in study.chapters if chapter.run is None}
        - {"00_start_here", "06_paper_figures"}  # of one study
    )
    if len(studies) == 1 or not chapters:
        figures = ["06_paper_figures"] if len(studies) > 1 else [chapter.notebook for chapter in studies[0].chapters]
        chapters += [f"{study.name}/{chapter}" for study in studies for chapter in figures if chapter not in chapters]
    for chapter in chapters:
        executed = json.loads((folder / f"notebooks/{chapter}.ipynb").read_text())
        assert any(cell.get("outputs") for cell in executed["cells"]), "chapters are kept with their pictures"
    assert (folder / "SYSTEM.md").exists()
    assert faults(folder) == []
    drawn = {path.stem for path in (folder / "figures").glob("*.pdf")}
    assert drawn == set(exports.read_exports(folder).figures), "every figure is exported, with its data and its runs"
