"""Chapter 05b, executed on the committed factorial: its cells can be cited, and without one it names what measures it."""

from __future__ import annotations

from pathlib import Path

from hpc_utils import paths
from hpc_utils.publish import cells, exports

CHAPTER = "05b_sensitivity"


def test_the_committed_factorial_has_effects_and_a_fastest_point(executed, tmp_path: Path) -> None:
    text, figures = executed(paths.reference() / "epyc-avx512", CHAPTER)
    assert figures == {f"speed-sensitivity-cpu-sensitivity-{kind}" for kind in ("main-effects", "interactions")}
    assert "Sensitivity on two cores" in text
    found = exports.read_exports(tmp_path / "results")
    best = cells.cell(found, cells.parse("speed-best-points[study=sensitivity-cpu]"))
    assert best.unit == "ratio" and best.has_interval and len(best.runs) == 81
    assert cells.cell(found, cells.parse("speed-effects[study=sensitivity-cpu, effect=noise]")).unit == "share"


def test_without_a_factorial_the_study_that_measures_one_is_named(executed) -> None:
    text, figures = executed(paths.reference() / "epyc-2core", CHAPTER, study="laptop")
    assert "hpc study run sensitivity-cpu" in text and not figures
