"""The failure of a reproduction is reported with the fix of its symptom; every symptom is reproduced or has an example."""

from __future__ import annotations

from pathlib import Path

from companions.guide import reproductions
from hpc_utils.launch import symptoms
from tests.launch.test_failure import require_same_remedy


def test_status_and_failure_report_give_the_remedy_of_what_is_reproduced(tmp_path: Path) -> None:
    names = ["rank-variables", "disk-full", "environment", "checkpoint", "crash"]
    for name, (output, _) in reproductions.run(names).items():
        require_same_remedy(tmp_path / name, name, output)


def test_each_symptom_is_reproduced_or_has_an_example() -> None:
    examples = {name for name, symptom in symptoms.catalogue().items() if symptom.example}
    assert examples | reproductions.REPRODUCTIONS.keys() == symptoms.catalogue().keys()
    assert examples.isdisjoint(reproductions.REPRODUCTIONS)
