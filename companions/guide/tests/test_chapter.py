"""Chapter 11, executed: each symptom is reproduced with its line and passes with its fix, or its report is recognised."""

from __future__ import annotations

from pathlib import Path

from companions.guide.reproductions import REPRODUCTIONS
from hpc_utils.launch import symptoms
from hpc_utils.publish import exports


def test_every_symptom_is_checked(executed, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    text, _ = executed(tmp_path / "nothing", "11_troubleshooting")
    checked = (
        exports.read_exports(tmp_path / "results").frame("troubleshooting-symptoms").set_index("symptom").checked
    )
    assert set(checked.index) == set(symptoms.catalogue())
    reproduced = set(checked.index[checked == "reproduced"])
    assert REPRODUCTIONS.keys() - reproduced <= {"shared-memory"}, (
        "needs a mount namespace, which containers may refuse"
    )
    assert (checked[[name for name in checked.index if name not in REPRODUCTIONS]] == "recorded").all()
    assert all(f'<a id="{name}"></a>' in text for name in checked.index)
    assert "lumi-g: hsn0" in text and "19.5 TFLOP/s in fp32, 312 in bf16" in text
    assert all(f"`hpc study run {study}`" in text for study in ("loader-workers", "memory")), "not measured there"
