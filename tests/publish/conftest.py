"""The figures' look, for tests that draw; a result set, and one whose chapter handed on values."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from hpc_utils.publish.ledger import Ledger
from hpc_utils.publish.ledger import executed as note_execution
from matplotlib import pyplot as plt

from hpc_utils import paths, provenance, records
from hpc_utils.analyze.value import Value
from hpc_utils.publish import style


@pytest.fixture
def styled() -> Iterator[None]:
    """`style.apply` for this test alone; its figures are closed."""
    with matplotlib.rc_context(), pd.option_context("display.float_format", None, "display.max_colwidth", 50):
        style.apply()
        yield
        plt.close("all")


@pytest.fixture
def result_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the committed laptop study, without what its chapters made of it; `HPC_RESULTS` names it."""
    folder = copied(tmp_path / "results")
    monkeypatch.setenv("HPC_RESULTS", str(folder))
    return folder


@pytest.fixture
def handed(result_set: Path) -> Path:
    """The same, after a chapter handed on a value with an interval, a count, a word, a figure and a table."""
    return hand_on(result_set)


def copied(folder: Path) -> Path:
    """`result_set` in `folder`, for fixtures of a whole module."""
    for part in ("runs", "studies", "csv"):
        shutil.copytree(paths.root() / "results/reference/epyc-2core" / part, folder / part)
    return folder


def hand_on(result_set: Path) -> Path:
    """`handed`, likewise."""
    runs = records.load(result_set, study="laptop").runs
    one = tuple(runs[runs.world_size == 1].run_id)
    ledger = Ledger("06_paper_figures", runs, study="laptop", results=result_set)
    ledger.add(
        [
            Value(
                "strong.efficiency.2",
                0.7231,
                "share",
                "Efficiency on 2 ranks.",
                0.6412,
                0.8109,
                3,
                tuple(runs.run_id),
            ),
            Value("study.runs", len(runs), "count", "Complete runs.", runs=tuple(runs.run_id)),
            Value("study.device", "AMD EPYC", "text", "The processor.", runs=one),
        ]
    )
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2))
    axes.plot([1, 2], [1, 0.72])
    points = pd.DataFrame({"ranks": [1, 2], "efficiency": [1, 0.7231]})
    ledger.figure(figure, "laptop-efficiency", data=points, says="Efficiency over ranks.", runs=one)
    plt.close(figure)
    ledger.table(points, "laptop-points", says="The points.")
    executed = result_set / "notebooks/laptop/06_paper_figures.ipynb"
    executed.parent.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "dirty", lambda: False)  # whatever the tree is that these tests are of
        told = ledger.write()
    executed.write_text(json.dumps({"cells": [], "metadata": {"told": told}, "nbformat": 4, "nbformat_minor": 5}))
    note_execution(result_set, executed)
    return result_set
