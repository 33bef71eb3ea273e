"""One figure is given out with its data and source, in each format, and never when it is not what its chapter drew."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from PIL import Image

from companions.export import figures
from hpc_utils import paths
from hpc_utils.cli import main
from hpc_utils.publish import cells, exports

NAME = "laptop-efficiency"
ELEMENT = "{http://www.w3.org/2000/svg}"


def figure(folder: Path) -> tuple[exports.Exports, exports.Item]:
    exported = exports.read_exports(folder)
    return exported, exported.figures[NAME]


def test_a_figure_comes_in_each_format_with_its_data_and_source(exported: Path, tmp_path: Path) -> None:
    written = figures.write_figure(*figure(exported), tmp_path / "out")
    assert [path.name for path in written] == [f"{NAME}.{kind}" for kind in ("pdf", "svg", "png", "csv", "json")]
    pdf, svg, png, csv, source = written
    assert pdf.read_bytes() == (exported / f"figures/{NAME}.pdf").read_bytes()
    with Image.open(png) as image:
        assert image.format == "PNG"
    assert pd.read_csv(csv).efficiency.tolist() == [1, 0.7231]
    told = json.loads(source.read_text())
    assert (told["caption"], told["notebook"]) == ("Efficiency over ranks.", "06_paper_figures")
    assert told["measured at commits"] and set(told["runs"]) < {path.name for path in (exported / "runs").iterdir()}
    drawing = xml.etree.ElementTree.parse(svg).getroot()
    assert drawing.tag == f"{ELEMENT}svg"
    assert len(drawing.findall(f".//{ELEMENT}path")) > 20, "lines and letters are drawn, not one picture"
    assert not drawing.findall(f".//{ELEMENT}image")


def test_a_format_that_there_is_not_is_refused(exported: Path, tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(figures.CannotExport, match=r"no format jpeg: .*png"):
        figures.write_figure(*figure(exported), tmp_path, ["jpeg"])
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(figures.CannotExport, match="--format pdf"):
        figures.write_figure(*figure(exported), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_of_two_sets_with_one_name_the_set_is_asked_for(exported: Path) -> None:
    both = dict.fromkeys(("results", "other"), exports.read_exports(exported))
    with pytest.raises(cells.UnknownCell, match=f"results:{NAME} or other:{NAME}"):
        cells.find_item("figures", NAME, both)
    set_name, found = cells.find_item("figures", f"other:{NAME}", both)
    assert (set_name, found.name) == ("other", NAME)
    with pytest.raises(cells.UnknownCell, match="laptop-efficiency"):
        cells.find_item("figures", "laptop-eficiency", both)


def test_a_figure_that_was_changed_since_is_not_given_out(exported: Path, tmp_path: Path) -> None:
    wanted = figure(exported)
    (exported / f"figures/{NAME}.pdf").write_text("painted")
    with pytest.raises(
        figures.CannotExport, match=r"figures/laptop-efficiency\.pdf is not as 06_paper_figures wrote it"
    ):
        figures.write_figure(*wanted, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_warns_of_a_figure_whose_runs_have_changed(exported: Path, tmp_path: Path) -> None:
    asked = ["export", NAME, "--results", str(exported), "--format", "png", "--output", str(tmp_path / "out")]
    assert "warning" not in CliRunner().invoke(main, asked, catch_exceptions=False).output
    epochs = sorted((exported / "runs").glob("*/epochs.csv"))[0]
    epochs.write_text(epochs.read_text() + "\n")
    said = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert said.exit_code == 0 and "warning: exports/laptop-06_paper_figures.json rests on" in said.output


def test_the_command_lists_and_writes(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "root", lambda: tmp_path / "clone")
    listed = CliRunner().invoke(main, ["export"])
    assert re.search(rf"^results:{NAME}  Efficiency over ranks\.$", listed.output, re.M)
    done = CliRunner().invoke(main, ["export", NAME, "--format", "pdf", "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / f"out/{NAME}.pdf").exists() and not (tmp_path / f"out/{NAME}.png").exists()
    assert CliRunner().invoke(main, ["export", "nothing"]).exit_code == 2


def test_a_committed_set_has_its_alias(tmp_path: Path) -> None:
    listed = CliRunner().invoke(main, ["export"]).output
    assert f"\nlaptop:{NAME}  " in listed and "\nrehearsal:" in listed
    done = CliRunner().invoke(main, ["export", f"laptop:{NAME}", "--format", "pdf", "--output", str(tmp_path)])
    assert done.exit_code == 0 and (tmp_path / f"{NAME}.pdf").stat().st_size
