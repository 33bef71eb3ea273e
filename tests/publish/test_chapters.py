"""A set's report is bound from the chapters that lie there, and nothing is executed."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from click.testing import CliRunner
from nbformat.v4 import new_markdown_cell, new_notebook

from hpc_utils import paths
from hpc_utils.cli import main
from hpc_utils.publish import chapters


def lay(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / f"notebooks/{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(new_notebook(cells=[new_markdown_cell(f"# {name}")]), path)


def hpc(*words: str):
    return CliRunner().invoke(main, ["report", *words])


def titles(page: Path) -> list[str]:
    return [title.get_text() for title in BeautifulSoup(page.read_text(), "html.parser").select("article h2")]


def test_a_set_s_chapters_stand_in_their_order(exported: Path) -> None:
    lay(exported, "03_scaling", "other/02_ddp", "laptop/01_baseline")
    result = hpc("--results", str(exported))
    assert result.exit_code == 0, result.output
    page = exported / "report/index.html"
    assert result.output.strip() == str(page)
    assert titles(page) == ["laptop/01_baseline", "other/02_ddp", "03_scaling", "06_paper_figures"]


def test_a_study_s_own_chapters_stand_before_those_of_all(exported: Path, tmp_path: Path) -> None:
    index = json.loads((exported / "studies/laptop.json").read_text())
    index["chapters"] = [{"notebook": name, "run": None} for name in ("03_scaling", "02_ddp", "01_baseline")]
    (exported / "studies/laptop.json").write_text(json.dumps(index))
    lay(exported, "03_scaling", "laptop/02_ddp", "02_ddp", "other/01_baseline")
    page = chapters.bind(exported, "laptop", tmp_path / "page.html")
    assert titles(page) == ["03_scaling", "laptop/02_ddp"]
    assert not (exported / "report").exists()
    soup = BeautifulSoup(page.read_text(), "html.parser")
    assert (page.parent / soup.select_one("#runs tbody a")["href"]).is_dir()  # from wherever the page lies


def test_a_stale_set_has_a_notice_on_top(exported: Path) -> None:
    assert not BeautifulSoup(chapters.bind(exported).read_text(), "html.parser").select("#stale")
    (exported / "figures/laptop-efficiency.png").write_bytes(b"painted")
    soup = BeautifulSoup(chapters.bind(exported).read_text(), "html.parser")
    assert "figures/laptop-efficiency.png" in soup.select_one("#top #stale").get_text()


def test_what_is_no_result_set_is_refused(tmp_path: Path) -> None:
    result = hpc("--results", str(tmp_path))
    assert result.exit_code == 2 and "no result set" in result.output and "rehearsal" in result.output
    assert not (tmp_path / "report").exists()


def test_an_unknown_study_is_refused(exported: Path) -> None:
    result = hpc("none", "--results", str(exported))
    assert result.exit_code == 2 and "no study 'none'" in result.output


def test_a_committed_set_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert paths.result_set("rehearsal") == paths.root() / "results/reference/rehearsal"
    (tmp_path / "rehearsal/runs").mkdir(parents=True)
    assert paths.result_set("rehearsal") == tmp_path / "rehearsal"
