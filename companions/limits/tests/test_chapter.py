"""Chapter 03b, executed: on committed sets it comes to its conclusions, on a small study it says what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.publish import exports
from tests.notebooks.test_03 import LAPTOP, REHEARSAL, require_complete

CHAPTER = "03b_limits"


def test_the_rehearsal_predicts_ranks_and_links_that_the_model_has_not_seen(executed, tmp_path):
    text, figures = executed(REHEARSAL, CHAPTER)
    found = exports.read_exports(tmp_path / "results")
    errors = found.frame("scaling-model-accuracy").set_index("points").loc["held out"]
    assert errors.median_error < 0.05 and errors.worst_error < 0.25
    assert f"median error of {100 * errors.median_error:.1f} %" in text
    assert {"scaling-model", "scaling-reach", "scaling-parts", "scaling-allreduce"} <= figures
    assert found.frame("scaling-reach").extrapolation.notna().any()
    require_complete(found, figures, REHEARSAL, CHAPTER)


def test_shares_of_a_core_are_beside_whole_ones(executed, tmp_path: Path) -> None:
    _, figures = executed(paths.reference() / "shares", CHAPTER)
    fair = exports.read_exports(tmp_path / "results").frame("scaling-shares")
    assert "scaling-shares" in figures and (fair.deviation[fair.cores < 1] > 0).all()


@pytest.mark.soak
def test_a_study_of_one_machine_states_what_is_not_there(executed, tmp_path: Path) -> None:
    text, _ = executed(LAPTOP, CHAPTER, study="laptop")
    assert "hpc bench allreduce" in text and "hpc bench storage" in text and "hpc study run shares" in text
    tables = exports.read_exports(tmp_path / "results").tables
    assert not {"laptop-scaling-links", "laptop-scaling-storage", "laptop-scaling-model-errors"} & set(tables)
