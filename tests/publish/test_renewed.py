"""Chapters executed anew on a result set: what they export is fresh, and leaves no path of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from click.testing import CliRunner

from hpc_utils import paths, records
from hpc_utils.analyze import scaling
from hpc_utils.cli import main
from hpc_utils.publish import cells, chapters, exports
from hpc_utils.publish.chapter import Chapter

from .conftest import faults

CHAPTER = "06_paper_figures"
HANG = 240  # s; it takes some 8 s


def test_what_a_chapter_exports_is_fresh(renewed: Path) -> None:
    assert faults(renewed) == []
    found = exports.read_exports(renewed)
    assert {"laptop-efficiency", "laptop-throughput", "laptop-accuracy"} == set(found.figures)
    assert all(one.data for one in found.figures.values())
    (anew,), (committed,) = (
        one.pages.values() for one in (found, exports.read_exports(paths.reference() / "epyc-2core"))
    )
    assert all(anew[part] == committed[part] for part in ("tables", "runs", "files"))
    curves = scaling.efficiency(records.load(renewed, study="laptop").runs)
    row = curves[(curves.kind == "strong") & (curves.baseline == "none") & (curves.precision == "fp32")].iloc[-1]
    written = "laptop-efficiency[kind=strong, baseline=none, precision=fp32, world_size=2]"
    assert cells.cell(found, cells.parse(written)).value == row.efficiency
    for pattern in ("exports/*", "tables/*", "notebooks/*/*.ipynb"):
        for path in renewed.glob(pattern):
            assert str(renewed) not in path.read_text() and str(paths.root()) not in path.read_text(), path
    cells_shown = nbformat.read(renewed / f"notebooks/laptop/{CHAPTER}.ipynb", as_version=4).cells
    outputs = [output for cell in cells_shown for output in cell.get("outputs", ())]
    shown = [output.metadata["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert {picture["figure"]: picture["alt"] for picture in shown} == {
        name: figure.caption for name, figure in found.figures.items()
    }
    assert len(shown) == len(found.figures), "each figure is shown once"


@pytest.mark.parametrize(
    "arguments",
    [
        ["01_baseline"],
        [CHAPTER, "-p", "studdy=laptop"],
        ["99_none"],
        [CHAPTER, "-p", "study=none"],
    ],
)
def test_what_cannot_be_executed_is_reported(arguments: list[str], result_set: Path) -> None:
    done = CliRunner().invoke(main, ["chapter", *arguments])
    assert done.exit_code == 2 and done.output
    assert not (result_set / "exports").exists()


def test_names_that_would_go_leave_the_set_as_it_was(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture exports what the chapter does not; what stands for its execution writes another page."""

    def execute(notebook: Path, output: Path, **parameters: object) -> Path:
        own = Chapter(CHAPTER, study="laptop")
        own.export(pd.DataFrame({"a": [1]}), "points", "")
        output.write_text(own.close())
        return output

    monkeypatch.setattr(chapters, "execute", execute)
    parts = [path for part in chapters.WRITTEN for path in (exported / part).rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in parts}
    words = ["chapter", CHAPTER, "--results", str(exported)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2 and "export figure laptop-efficiency, table laptop-efficiency;" in done.output, (
        done.output
    )
    assert {path: path.read_bytes() for path in parts} == before and faults(exported) == []
    assert CliRunner().invoke(main, [*words, "--drop"]).exit_code == 0
    assert set(exports.read_exports(exported).tables) == {"laptop-points"}
    assert not [path for path in parts if path.stem == "laptop-efficiency" and path.exists()], (
        "their files go with them"
    )


def test_ended_from_outside_it_leaves_the_set_as_it_was(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def execute(notebook: Path, output: Path, **parameters: object) -> Path:
        (exported / "figures/laptop-efficiency.pdf").write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal was not received")

    monkeypatch.setattr(chapters, "execute", execute)
    former = signal.getsignal(signal.SIGTERM)
    done = CliRunner().invoke(main, ["chapter", CHAPTER, "--results", str(exported)])
    assert done.exit_code == 130 and faults(exported) == [] and not list(exported.glob(".before-*"))
    assert signal.getsignal(signal.SIGTERM) is former


def test_a_set_is_joined_where_it_lies(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPC_RESULTS")
    (exported / "csv/runs.csv").write_text('run_id\n"cut off')
    done = CliRunner().invoke(main, ["collect", "--results", str(exported)])
    assert done.exit_code == 0 and str(exported / "csv") in done.output
    assert set(pd.read_csv(exported / "csv/runs.csv").run_id) == {one.name for one in (exported / "runs").iterdir()}


def test_all_chapters_of_all_sets_are_drawn_again(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(
        chapters, "renew", lambda notebook, results, study="", **_: drawn.append((results, study, notebook))
    )
    done = CliRunner().invoke(main, ["chapter", "--all"])
    assert done.exit_code == 0, done.output
    folders = [exported, *sorted(paths.reference().glob("*/"))]
    pages = [(folder, page) for folder in folders for page in exports.read_exports(folder).pages.values()]
    notebooks = paths.notebooks()
    assert drawn == [(folder, page["study"], notebooks / f"{page['notebook']}.ipynb") for folder, page in pages]
    assert CliRunner().invoke(main, ["chapter"]).exit_code == 2
    makefile = subprocess.run(["make", "-n", "figures"], cwd=paths.root(), capture_output=True, text=True).stdout
    assert "hpc chapter --all" in makefile
