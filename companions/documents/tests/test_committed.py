"""The committed documents build from the committed results, are as long as they should be, and are those that docs/pdf shows."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pypdf
import pytest

from companions.documents import build, sets
from companions.documents.faults import DocumentError
from tests.support import pdf_text

from .conftest import ROOT

PAGES = {
    "paper": range(5, 6), "proposal": range(6, 9), "slides": range(5, 6), "bottlenecks": range(2, 4), "summary": range(1, 2),
    "resnet18": range(4, 7),
}  # fmt: skip
said_by = functools.cache(pdf_text)  # the built PDFs are read twice
LATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error")
CLASSES = {"ieee": ("IEEEtran.cls", "IEEEtran.bst"), "acm": ("acmart.cls", "totpages.sty")}
SHOWN = sorted(path.stem for path in (ROOT / "docs/pdf").glob("*.pdf"))


def needs(style: str) -> None:
    """Skip where the programs or the class are missing."""
    for program in ("pdflatex", "bibtex", "kpsewhich"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: TeX is not installed (Debian: texlive-publishers, texlive-latex-extra)")
    for file in CLASSES[style]:
        if subprocess.run(["kpsewhich", file], capture_output=True).returncode:
            pytest.skip(f"TeX is installed, but not {file} (Debian: texlive-publishers, texlive-latex-extra)")


def tex(folder: Path, program: str, *options: str) -> str:
    done = subprocess.run(
        [program, *options, "paper"], cwd=folder, capture_output=True, text=True, errors="replace", timeout=120
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("committed")
    folder = shutil.copytree(ROOT / "paper", root / "paper", ignore=shutil.ignore_patterns("build"))
    (root / "results").symlink_to(ROOT / "results")
    shared = sets.read_context(root)
    assert shared.project.document.keys() >= PAGES.keys()
    try:
        build.build(shared)
    except DocumentError as error:
        print(error)  # the others are built; pytest shows it beside those that are not
    return folder / "build"


@pytest.mark.parametrize("name", PAGES)
def test_it_is_as_long_as_it_should_be(built: Path, name: str) -> None:
    assert len(pypdf.PdfReader(built / f"{name}.pdf").pages) in PAGES[name]
    said = said_by(built / f"{name}.pdf")
    measured = (ROOT / "results/reference/mpi").exists() or name != "summary"
    assert ("Source: chapter" if measured else "not measured") in said
    assert ("Colophon" in said) == (name in ("proposal", "resnet18"))  # the others have it in their properties


def test_visitors_are_shown_what_the_results_give(built: Path) -> None:
    """Up to commits and fingerprints, which every new execution of a chapter changes."""

    def lasting(path: Path) -> str:
        return re.sub(r"Built with .*? Build again|\b[0-9a-f]{7,}\b", "", said_by(path))

    assert (
        SHOWN == ["bottlenecks", "paper", "proposal", "resnet18", "slides", "summary"]
        and (ROOT / "docs/pdf/paper.tex").is_file()
    )
    assert (built / "tex/ieee/figures/1-architecture.pdf").is_file(), "pdflatex reads no SVG"
    for name in SHOWN:
        shown = ROOT / f"docs/pdf/{name}.pdf"
        assert lasting(shown) == lasting(built / f"{name}.pdf"), f"{shown} is of an earlier state: run `make pdf`"


@pytest.mark.soak  # so that CI does without TeX, whose installation takes longer than the tests
@pytest.mark.parametrize("style", ["ieee", "acm"])
def test_the_paper_compiles_as_tex(built: Path, style: str) -> None:
    needs(style)
    folder = built / "tex" / style
    for program, *options in (LATEX, ("bibtex",), LATEX, LATEX):
        tex(folder, program, *options)
    said = pdf_text(folder / "paper.pdf")
    assert "??" not in said and "[?]" not in said
