"""The figures' look, for tests that draw; a result set, and one whose chapter exported tables and a figure."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from hpc_utils import paths, provenance, records
from hpc_utils.config import RunConfig
from hpc_utils.publish import exports, staleness
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.chapters import conclude
from hpc_utils.publish.plots import style
from hpc_utils.publish.plots.chart import Chart
from hpc_utils.records.study import ReportChapter, StudyIndex, StudyRun
from tests.launch.conftest import HPC
from tests.support import copy_runs


def own_style() -> contextlib.ExitStack:
    """What `style.apply` sets, a chapter does, is then as it was."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(matplotlib.rc_context())
        stack.enter_context(pd.option_context("display.float_format", None, "display.max_colwidth", 50))
        stack.callback(plt.close, "all")
        return stack.pop_all()


@pytest.fixture(autouse=True)
def _own_style() -> Iterator[None]:
    with own_style():
        yield


@pytest.fixture
def styled() -> None:
    """The figures' look, for this test alone; its figures are closed."""
    style.apply()


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `plain` and `exported`, of which `result_set` and the fixture `exported` are copies."""
    folder = tmp_path_factory.mktemp("sets")
    copy_runs(paths.reference() / "epyc-2core", folder / "plain")
    shutil.copytree(paths.reference() / "epyc-2core/studies", folder / "plain/studies")
    records.collect(folder / "plain")
    shutil.copytree(folder / "plain", folder / "exported")
    export(folder / "exported")
    return folder


@pytest.fixture
def result_set(sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the committed laptop study, without what its chapters made of it; `HPC_RESULTS` names it."""
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    return shutil.copytree(sets / "plain", tmp_path / "results")


@pytest.fixture
def exported(sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, after a chapter exported a table with intervals, one without, and a figure."""
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    return shutil.copytree(sets / "exported", tmp_path / "results")


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the study `words` of a small language model, with its report."""
    from hpc_utils.train import train
    from tests.train import tokens

    results = tmp_path_factory.mktemp("words") / "results"
    with own_style(), paths.results_at(results):
        runs = [train(RunConfig(**tokens.RUN, parallel="none", repeat=repeat)) for repeat in (1, 2, 3)]
        chapters = [ReportChapter(notebook="06_paper_figures")]
        StudyIndex(name="words", chapters=chapters, runs=[StudyRun(run_id=run.run_id) for run in runs]).write()
        conclude("words")
    return results


@pytest.fixture
def renewed(result_set: Path) -> Path:
    """The laptop study's set after `hpc chapter`, called where the set is not."""
    environment = {name: value for name, value in os.environ.items() if name != "HPC_RESULTS"}
    command = [*HPC, "chapter", "06_paper_figures", "--results", str(result_set), "-p", "study=laptop"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == str(result_set / "notebooks/laptop/06_paper_figures.ipynb")
    return result_set


def chart(data: pd.DataFrame, name: str = "efficiency", runs: tuple[str, ...] | None = None) -> Chart:
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2))
    axes.plot([1, 2], [1, 0.72])
    plt.close(figure)
    return Chart(figure, data, name, "Efficiency over ranks.", runs)


def export(result_set: Path) -> None:
    with own_style(), paths.results_at(result_set), pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "dirty", lambda: False)  # whatever the tree is that these tests are of
        chapter = Chapter("06_paper_figures", study="laptop")
        one = tuple(chapter.runs.run_id[chapter.runs.world_size == 1])
        points = pd.DataFrame({"ranks": [1, 2], "efficiency": [1, 0.7231]})
        several = points.assign(
            efficiency_low=[None, 0.6412], efficiency_high=[None, 0.8109], limit=[None, "communication"]
        )
        several["repeats"] = 3
        several["runs"] = [one, tuple(chapter.runs.run_id)]
        chapter.export(several, "efficiency", "Efficiency of every point.", measure="efficiency")
        chapter.export(points, "points", "The points.")
        chapter.figure(chart(points, runs=one))
        execution(result_set, "laptop/06_paper_figures", chapter.close())


def execution(result_set: Path, chapter: str, line: str, **parameters: object) -> None:
    """What stands for the executed notebook of the chapter whose `close` returned `line`."""
    executed = result_set / f"notebooks/{chapter}.ipynb"
    executed.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"exported": line, "papermill": {"parameters": parameters}}
    executed.write_text(json.dumps({"cells": [], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    exports.note_execution(result_set, executed)


def faults(folder: Path) -> list[str]:
    """What is stale in a result set."""
    return staleness.faults(exports.read_exports(folder), records.load(folder))
