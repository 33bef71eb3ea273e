"""A project of its own: two small result sets of real runs, written through the ledger, and a paper that draws on them."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from hpc_utils.publish.ledger import Ledger

from hpc_utils import records
from hpc_utils.analyze.value import Value
from hpc_utils.publish import style
from hpc_utils.publish.documents import build, workshop
from hpc_utils.publish.documents.faults import DocumentError

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
mixed_digests = "Nothing is compared between the two sets."

[document.slides]
source = "slides.md"
template = "slides"
sets = ["laptop"]
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
  Two ranks reach {{laptop:strong.efficiency.2|interval}} of the
  ideal.
---

# Introduction {#sec:intro}

Scaling is measured often [@li2020ddp; @amdahl1967, p. 3]. Two ranks reach {{laptop:strong.efficiency.2}}, between
{{laptop:strong.efficiency.2|low}} and {{laptop:strong.efficiency.2|high}}, in {{laptop:strong.efficiency.2|repeats}}
repeats over [10 Gbit/s]{.setting} (Figure @fig:eff, Table @tbl:runs, Section @sec:intro).
A link gives {{link.bandwidth}}. What limits is {{limits.what}}. In a formula, $E = T_1 / (N\\,T_N)$.[^note]

[^note]: A footnote with {{link.bandwidth|interval}}.

![How efficient {{strong.runs}} runs are.](figure:efficiency){#fig:eff}

![The runs, the first ones.](table:runs){#tbl:runs columns="run_id,seconds" rows="3"}

| what | how much |
|:-----|---------:|
| efficiency | {{laptop:strong.efficiency.2|interval}} |

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

- Two ranks reach {{strong.efficiency.2|interval}}

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

    def build(self, *names: str, **options) -> list[Path]:
        return build.build(workshop.open_(self.root), names, **options)

    def faults(self, *names: str) -> list[str]:
        """What is wrong, a line each."""
        try:
            self.build(*(names or ("paper",)), check=True)
        except DocumentError as error:
            return [str(fault) for fault in error.faults]
        return []

    def hand_on(self, alias: str = "laptop", efficiency: float = 0.723) -> None:
        """What a chapter of the set hands on."""
        import pandas as pd
        from matplotlib.figure import Figure

        results = self.root / "sets" / alias
        runs = records.load(results).runs
        ledger = Ledger("03_scaling", runs, results=results)
        ids = tuple(runs.run_id)
        data = pd.DataFrame({"devices": [1, 2], "efficiency": [1.0, efficiency]})
        figure = Figure(figsize=(style.COLUMN, 2.2))
        figure.subplots().plot(data.devices, data.efficiency, "o-")
        own = [
            Value(
                "strong.efficiency.2",
                efficiency,
                "share",
                "Strong-scaling efficiency on two ranks.",
                0.641,
                0.807,
                3,
                ids,
            )
        ]
        if alias == "laptop":
            ledger.figure(figure, "efficiency", data=data, says="Efficiency against devices.")
            ledger.table(runs[["run_id", "seconds", "world_size"]], "runs", says="The runs.")
            own += [
                Value("strong.runs", len(ids), "count", "Runs of the study.", runs=ids),
                Value("link.bandwidth", 9.4e9, "bit/s", "Bandwidth of the link.", repeats=1, runs=ids[:1]),
                Value("limits.what", "communication", "text", "What limits two ranks.", runs=ids),
            ]
        ledger.add(own)
        line = ledger.write()
        executed = results / "notebooks/03_scaling.ipynb"
        executed.parent.mkdir(parents=True, exist_ok=True)
        executed.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": [line]}]}))


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    paper = Paper(root)
    for alias, kept, some in (
        ("laptop", "epyc-2core", "cnn-digits-ddp2-fp32-*"),
        ("rehearsal", "rehearsal", "cnn-digits-ddp1-*"),
    ):
        for run in sorted((REFERENCE / kept / "runs").glob(some))[:4]:
            shutil.copytree(run, root / "sets" / alias / "runs" / run.name)
        paper.hand_on(alias)
    paper.folder.mkdir()
    for name, text in (("paper.toml", TOML), ("paper.md", PAPER), ("slides.md", SLIDES), ("references.bib", BIB)):
        paper.put(text, name)
    return root


@pytest.fixture
def paper(_made: Path, tmp_path: Path) -> Paper:
    """A copy to change at will."""
    shutil.copytree(_made, tmp_path / "project")
    return Paper(tmp_path / "project")
