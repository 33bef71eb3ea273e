"""A project of its own: two small result sets of real runs, exported by chapters, and a paper that cites them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from companions.documents import build
from companions.documents.faults import DocumentError
from companions.documents.sets import read_context
from hpc_utils import paths
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.plots import style
from hpc_utils.publish.plots.chart import Chart
from tests.publish.conftest import _own_style, execution, own_style, sets, words  # noqa: F401
from tests.support import copy_runs

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "results/reference"

TOML = """\
[sets]
laptop = "sets/laptop"
rehearsal = "sets/rehearsal"

[document.paper]
source = "paper.md"
template = "paper"
tex = ["ieee", "acm"]

[document.slides]
source = "slides.md"
template = "slides"
sets = ["laptop"]
"""

PROJECT = """\
# A comment.
[sets]
rehearsal = "results/reference/rehearsal"  # another

[document.slides]
source = "slides.md"
template = "slides"
"""

PAPER = """\
---
title: A small study
short: Small
author:
  - name: Ada Example
    affiliation: University of Examples
keywords: [scaling, values]
abstract: |
  Two ranks reach {{laptop:efficiency[world_size=2]|interval}} of the
  ideal.
---

# Introduction {#sec:intro}

Scaling is measured often [@li2020ddp; @amdahl1967, p. 3]. Two ranks reach {{laptop:efficiency[world_size=2]}}, between
{{laptop:efficiency[world_size=2]|low}} and {{laptop:efficiency[world_size=2]|high}}, in {{laptop:efficiency[world_size=2]|repeats}}
repeats over [10 Gbit/s]{.setting} (Figure @fig:eff, Table @tbl:runs, Section @sec:intro).
A link gives {{link.bandwidth}}. What limits is {{limits.what}}. In a formula, $E = T_1 / (N\\,T_N)$.[^note]

[^note]: A footnote with {{link.bandwidth|interval}}.

![How efficient {{study.complete}} runs are.](figure:efficiency){#fig:eff}

![The runs, the first ones.](table:runs){#tbl:runs columns="run_id,seconds" rows="3"}

| what | how much |
|:-----|---------:|
| efficiency | {{laptop:efficiency[world_size=2]|interval}} |

: Typed cells with values. {#tbl:typed}

As Table @tbl:typed shows, `{{this.is.code}}` stays code.
"""

SLIDES = """\
---
title: A small study
author:
  - name: Ada Example
---

# What limits

- Two ranks reach {{efficiency[world_size=2]|interval}}

![Efficiency.](figure:efficiency)
"""

BIB = """\
@article{li2020ddp, author = {Li, Shen}, title = {Distributed}, journal = {VLDB}, year = {2020}, volume = {13}}
@inproceedings{amdahl1967, author = {Amdahl, Gene}, title = {Validity}, booktitle = {AFIPS}, year = {1967}}
"""


@dataclass
class Paper:
    """A checkout in miniature."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "paper"

    def put(self, text: str, name: str = "paper.md") -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def say(self, sentence: str) -> int:
        """The usual paper with one more line at its end; returns that line's number."""
        self.put(f"{PAPER}\n{sentence}\n")
        return PAPER.count("\n") + 2

    def build(self, *names: str, check: bool = False, log=lambda line: None) -> list[Path]:
        return build.build(read_context(self.root, log=log), names, check=check)

    def faults(self, *names: str) -> list[str]:
        """What is wrong, a line each."""
        try:
            self.build(*(names or ("paper",)), check=True)
        except DocumentError as error:
            return [str(fault) for fault in error.faults]
        return []

    def export(self, alias: str = "laptop", efficiency: float = 0.723) -> None:
        """What a chapter of the set exports."""
        import pandas as pd
        from matplotlib.figure import Figure

        results = self.root / "sets" / alias
        with own_style(), paths.results_at(results):
            chapter = Chapter("03_scaling")
            runs = chapter.runs
            data = pd.DataFrame({"world_size": [1, 2], "efficiency": [1.0, efficiency]})
            figure = Figure(figsize=(style.COLUMN, 2.2))
            figure.subplots().plot(data.world_size, data.efficiency, "o-")
            ends = {"efficiency_low": [None, 0.641], "efficiency_high": [None, 0.807], "repeats": 3}
            chapter.export(
                data.assign(**ends), "efficiency", "Strong-scaling efficiency of two ranks.", measure="efficiency"
            )
            if alias == "laptop":
                chapter.figure(Chart(figure, data, "efficiency", "Efficiency against devices."))
                chapter.export(runs[["run_id", "seconds", "world_size"]], "runs", "The runs.", runs=runs.run_id)
                chapter.export(pd.DataFrame({"complete": [len(runs)]}), "study", "Runs of the study.")
                link = {"bandwidth": [9.4e9], "bandwidth_low": [None], "bandwidth_high": [None], "repeats": [1]}
                chapter.export(pd.DataFrame(link), "link", "Bandwidth of the link.", runs=runs.run_id[:1])
                chapter.export(pd.DataFrame({"what": ["communication"]}), "limits", "What limits two ranks.")
            execution(results, "03_scaling", chapter.close())


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    paper = Paper(root)
    for alias, kept, some in (
        ("laptop", "epyc-2core", "cnn-digits-ddp2-fp32-*"),
        ("rehearsal", "rehearsal", "cnn-digits-ddp1-*"),
    ):
        copy_runs(REFERENCE / kept, root / "sets" / alias, some, limit=4)
        paper.export(alias)
    paper.folder.mkdir()
    for name, text in (("paper.toml", TOML), ("paper.md", PAPER), ("slides.md", SLIDES), ("references.bib", BIB)):
        paper.put(text, name)
    return root


@pytest.fixture
def paper(_made: Path, tmp_path: Path) -> Paper:
    """A copy to change at will."""
    shutil.copytree(_made, tmp_path / "project")
    return Paper(tmp_path / "project")
