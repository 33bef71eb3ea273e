"""The TeX folders compile by themselves where TeX is installed, for both conference classes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import PAPER, Paper
from .test_build import text

LATEX = ("pdflatex", "-interaction=nonstopmode", "-halt-on-error")
CLASSES = {"ieee": ("IEEEtran.cls", "IEEEtran.bst"), "acm": ("acmart.cls", "totpages.sty")}


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


@pytest.mark.soak  # so that CI does without TeX, whose installation takes longer than these tests
@pytest.mark.parametrize("style", ["ieee", "acm"])
def test_it_compiles(paper: Paper, style: str, tmp_path: Path) -> None:
    needs(style)
    paper.put(
        PAPER
        + "\nSpecial: 100&#8239;000 & # _ → ≥ µ × “quoted” – é naïve.\n".replace("100&#8239;000", "[a b]{.name}")
    )
    paper.build("paper")
    folder = tmp_path / "alone"
    shutil.copytree(paper.folder / f"build/tex/{style}", folder)
    for program, *options in (LATEX, ("bibtex",), LATEX, LATEX):
        tex(folder, program, *options)
    said = text(folder / "paper.pdf")
    for part in ("72.3 % [64.1, 80.7]", "9.40 Gbit/s", "Colophon".upper() if style == "acm" else "C OLOPHON", "Li"):
        assert part.lower().replace(" ", "") in said.lower().replace(" ", "")
    assert "??" not in said
