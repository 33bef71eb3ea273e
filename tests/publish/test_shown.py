"""A figure that is exported stands in the notebook once, by its name and with words."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from matplotlib import pyplot as plt
from nbformat.v4 import new_code_cell, new_notebook

from hpc_utils.publish import chapter, chapters

CELL = """
import pandas as pd
from matplotlib import pyplot as plt
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.plots.chart import Chart

chapter = Chapter("figures")
for name in ("first", "second"):
    chapter.figure(Chart(plt.subplots(figsize=(1, 1))[0], pd.DataFrame(), name, f"The {name} one."))
"""


def test_each_figure_is_shown_once_by_its_name(result_set: Path, tmp_path: Path) -> None:
    notebook = new_notebook(cells=[new_code_cell(CELL)])
    notebook.metadata.kernelspec = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "figures.ipynb")
    executed = nbformat.read(chapters.execute(tmp_path / "figures.ipynb", tmp_path / "out.ipynb"), as_version=4)
    outputs = executed.cells[0].outputs
    assert [output.metadata["image/png"] for output in outputs] == [
        {"alt": f"The {name} one.", "figure": name} for name in ("first", "second")
    ]
    assert all("image/png" in output.data for output in outputs)


def test_outside_a_notebook_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    figure = plt.figure()
    chapter.show(figure, "first", "The first one.")
    assert capsys.readouterr().out == "" and plt.fignum_exists(figure.number)
    plt.close(figure)
