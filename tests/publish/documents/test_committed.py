"""The committed documents build from the committed results, and are as long as they should be."""

from __future__ import annotations

import shutil
from pathlib import Path

import pypdf
import pytest

from hpc_utils.publish.documents import build, context
from hpc_utils.publish.documents.faults import DocumentError

from .conftest import ROOT
from .test_build import text
from .test_latex import LATEX, needs, tex

PAGES = {"paper": range(4, 7), "proposal": range(6, 9), "slides": range(6, 7), "bottlenecks": range(2, 4)}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("committed") / "paper"
    shutil.copytree(ROOT / "paper", folder, ignore=shutil.ignore_patterns("build"))
    shared = context.read(ROOT, folder)
    assert shared.project.document.keys() == PAGES.keys()
    try:
        build.build(shared)
    except DocumentError as error:
        print(error)  # the others are built; pytest shows it beside those that are not
    return folder / "build"


@pytest.mark.parametrize("name", PAGES)
def test_it_is_as_long_as_it_should_be(built: Path, name: str) -> None:
    assert len(pypdf.PdfReader(built / f"{name}.pdf").pages) in PAGES[name]  # slides: five, and the colophon
    said = text(built / f"{name}.pdf")
    assert "Source: chapter" in said
    assert "Colophon" in said


@pytest.mark.parametrize("style", ["ieee", "acm"])
def test_the_paper_compiles_as_tex(built: Path, style: str) -> None:
    needs(style)
    folder = built / "tex" / style
    for program, *options in (LATEX, ("bibtex",), LATEX, LATEX):
        tex(folder, program, *options)
    said = text(folder / "paper.pdf")
    assert "??" not in said
    assert "[?]" not in said
