"""What a report's numbers rest on: of a whole set or of one study, and what is stale of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpc_utils import records
from hpc_utils.publish import evidence, ledger


def test_a_whole_set_hands_over_everything(handed: Path) -> None:
    found = evidence.gather(handed)
    assert found.wanted is None and not found.faults
    assert set(found.handed.values) == {"strong.efficiency.2", "study.runs", "study.device"}


def test_a_study_hands_over_what_its_bound_chapters_say_and_the_runs_behind(handed: Path) -> None:
    index = json.loads((handed / "studies/laptop.json").read_text())
    half = index | {"name": "half", "runs": index["runs"][:2]}
    (handed / "studies/half.json").write_text(json.dumps(half))
    nothing = evidence.gather(handed, study="half")
    assert not nothing.handed.values and not nothing.handed.figures and not nothing.handed.tables
    assert nothing.wanted == {run["run_id"] for run in half["runs"]}
    bound = evidence.gather(handed, [handed / "notebooks/laptop/06_paper_figures.ipynb"], study="half")
    assert len(bound.handed.values) == 3 and bound.handed.figures and bound.handed.tables
    assert bound.wanted == set(records.load(handed).runs.run_id)


def test_what_is_stale_is_said(handed: Path) -> None:
    shutil.rmtree(next((handed / "runs").iterdir()))
    assert any("is gone" in fault for fault in evidence.gather(handed).faults)


def test_values_that_cannot_be_read_are_none_and_a_fault(handed: Path) -> None:
    (handed / "values/laptop-06_paper_figures.json").write_text("{")
    found = evidence.gather(handed)
    assert not found.handed.values
    assert "hpc chapter" in found.faults[0]


def test_an_unknown_study_is_refused(handed: Path) -> None:
    with pytest.raises(records.UnknownStudy, match="'none'"):
        evidence.gather(handed, study="none")


def test_what_was_read_is_not_read_again_to_find_what_is_stale(handed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    load, own = records.load, ledger.read
    monkeypatch.setattr(records, "load", lambda *a, **k: read.append(("records", k.get("study"))) or load(*a, **k))
    monkeypatch.setattr(ledger, "read", lambda folder: read.append(("values", None)) or own(folder))
    evidence.gather(handed)
    assert sorted(read, key=str) == [("records", "laptop"), ("records", None), ("values", None)]
