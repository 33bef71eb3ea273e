"""Everything wrong is said at once, each with its place, and a document with a fault leaves no PDF."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from companions.documents import project
from companions.documents.faults import DocumentError
from hpc_utils import paths, records
from hpc_utils.publish import exports
from hpc_utils.records.study import StudyRun

from .conftest import PAPER, TOML, Paper


def change(page: Path) -> None:
    page.write_text(page.read_text().replace("of two", "of 2"))


# A sentence, and a part of its fault: what is wrong, or the remedy.
WRONG = [
    ("{{eficiency[world_size=2]}}", "did you mean efficiency?"),
    ("{{laptop:efficiency[world_size=3]}}", "world_size=2"),
    ("{{laptop:efficiency[world_size]}}", "cites no cell"),
    ("{{efficiency[world_size=2]}}", "write laptop:efficiency or rehearsal:efficiency"),
    ("{{cloud:efficiency[world_size=2]}}", "no set 'cloud'"),
    ("{{link.bandwidth|low}}", "no interval"),
    ("{{link.bandwidth|percent}}", "no such form"),
    ("{{claim:bf16-speed}}", "no claim 'bf16-speed'"),
    ("![A caption.](figure:eficiency)", "did you mean efficiency?"),
    ("![A caption.](table:rums)", "did you mean runs?"),
    ('![A caption.](table:runs){columns="run_ids"}', "no column run_ids"),
    ("![](figure:efficiency)", "caption"),
    ("![A caption.](photo.png)", "photo.png: write figure:NAME"),
    ("![A caption.](figure:efficiency){#fig:eff}", "#fig:eff is given twice"),
    ("text ![A caption.](figure:efficiency) text", "paragraph of its own"),
    ("Figure @fig:ef", "nothing is labelled #fig:ef"),
    ("As known [@amdal1967].", "no entry 'amdal1967' in the bibliography"),
    ("As known [see @amdahl1967].", "not printed"),
    ("# References", "this heading already"),
    ("It is 72 % faster.", "'72 %' is typed by hand"),
    ("It is twice as fast.", "'twice as' is a quantity in words"),
    ("Others reach [94 %]{.cited}.", "cites nothing"),
    ("A <b>bold</b> word.", "raw html '</b>'"),
    ("`#set text()`{=typst}", "raw typst"),
    ("See \\cite{x}.", "raw tex"),
    ("$x_{{link.bandwidth}}$", "cannot stand in a formula"),
    ("[A link](https://{{link.bandwidth}}).", "cannot stand in"),
    ("A rocket: \U0001f680", "U+1F680"),
    ("{{efficiency[world_size=2]} is open", "braces of a cited cell are open"),
    ("![A caption.](figure:efficiency){height=5cm}", "height='5cm' is no attribute"),
    ("![A caption.](figure:efficiency){wide=yes}", "wide='yes' is no attribute"),
    ('![A caption.](paper.toml){source="us"}', "paper.toml: write figure:NAME"),
    ("A link gives {{link.bandwidth|bare}} kB/s.", "'kB/s' stands behind link.bandwidth"),
    ("It takes [10 s]{.seting}.", "'10 s' is typed by hand"),
]  # fmt: skip


def test_each_fault_is_named_with_its_line(paper: Paper) -> None:
    """All of `WRONG` in one paper, each in a paragraph of its own."""
    paper.put(PAPER + "".join(f"\n{sentence}\n" for sentence, _ in WRONG))
    wrong: dict[int, str] = {}
    for fault in paper.faults():
        _, line, message = fault.removeprefix("paper/paper.md").split(":", 2)
        wrong[int(line)] = wrong.get(int(line), "") + message
    for place, (sentence, message) in enumerate(WRONG):
        assert message in wrong.pop(PAPER.count("\n") + 2 + 2 * place, ""), sentence
    assert not wrong, "no other line has a fault"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (shutil.rmtree, "sets.rehearsal: there is no folder"),
        (lambda folder: change(next(folder.glob("exports/*.json"))), "changed by hand"),
    ],
    ids=["gone", "changed"],
)
def test_a_set_that_cannot_be_read_is_refused(paper: Paper, harm: Callable, message: str) -> None:
    harm(paper.root / "sets/rehearsal")
    with pytest.raises((project.ProjectError, exports.ExportError), match=message):
        paper.build()


def test_all_faults_come_at_once_and_the_other_document_is_built(paper: Paper) -> None:
    paper.build()
    paper.say("{{no.such}} and 72 %.")
    with pytest.raises(DocumentError, match="2 faults in the documents") as raised:
        paper.build()
    assert len(raised.value.faults) == 2
    assert raised.value.exit_code == 2
    target = paper.folder / "build"
    assert not (target / "paper.pdf").exists()
    assert not (target / "tex/ieee/paper.tex").exists()
    assert (target / "slides.pdf").exists()


def test_a_character_that_tex_lacks_stops_the_build(paper: Paper) -> None:
    paper.say("An α.")
    with pytest.raises(DocumentError, match="pdflatex cannot print α"):
        paper.build("paper")
    assert not (paper.folder / "build/paper.pdf").exists()


def test_a_stale_chapter_is_one_fault_before_others_and_hides_those_of_its_cells(paper: Paper) -> None:
    records = next((paper.root / "sets/laptop/runs").glob("*/epochs.csv"))
    records.write_text(records.read_text().replace("1", "2", 1))
    (paper.root / "sets/laptop/notebooks/03_scaling.ipynb").write_text("{}")
    claim = 'sentence = "It is"\ntests = [{ value = "laptop:efficiency[world_size=2]", at_least = 0.5 }]\n'
    paper.put(f"[many]\n{claim}", "claims.toml")
    line = paper.say("{{laptop:efficiency[world_size=9]}}, {{claim:many}} and 72 %.")
    stale, typed = paper.faults()
    assert stale.startswith("paper/paper.toml:2: results laptop: ") and "hpc chapter 03_scaling" in stale
    assert typed.startswith(f"paper/paper.md:{line}: '72 %'")


def test_a_stale_chapter_that_nothing_cites_is_no_fault(paper: Paper) -> None:
    (paper.root / "sets/rehearsal/notebooks/03_scaling.ipynb").write_text("{}")
    assert paper.faults() == []


def test_runs_of_former_code_are_a_fault_of_the_cells_that_rest_on_them(paper: Paper, monkeypatch) -> None:
    (paper.root / "own_model.py").write_text("width = 2")
    monkeypatch.chdir(paper.root)
    results = paper.root / "sets/laptop"
    loaded = records.load(results).runs.run_id
    path = results / f"runs/{loaded[3]}/run.json"
    record = json.loads(path.read_text())
    own = {"workload": "own_model:net", "source": "0" * 8}
    path.write_text(json.dumps(record | own | {"config": record["config"] | own}))
    with paths.results_at(results):
        records.StudyIndex(name="beside", runs=[StudyRun(run_id=loaded[3])]).write()
    paper.export()
    paper.put("---\ntitle: A page\n---\n\nA link gives {{laptop:link.bandwidth}}.\n")
    assert paper.faults() == [], "its run is another"
    paper.put("---\ntitle: A page\n---\n\nThere are {{laptop:study.complete}} runs.\n")
    (fault,) = paper.faults()
    assert "1 of 1 runs of beside " in fault


def test_a_changed_figure_stops_the_build(paper: Paper) -> None:
    (paper.root / "sets/laptop/figures/efficiency.pdf").write_text("painted")
    assert any("efficiency.pdf" in fault and "has changed" in fault for fault in paper.faults())


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("keywords:", "keyword:", 7),
        ("title: A small study", 'title: ""', 2),
        ("short: Small", "short: [1, 2]", 3),
        ("short: Small", 'subtitle: "{{no.such}}"', 3),
        ("keywords: [scaling, values]", "keywords: [72 % efficient]", 7),
        ("  - name: Ada Example", "  - nam: Ada Example", 5),
        ("affiliation: University of Examples", "affiliation: 72.3 percent efficient", 6),
        ("  ideal.\n", "  ideal, 72 % of it.\n", 10),
    ],
)
def test_front_matter_is_read_strictly(paper: Paper, old: str, new: str, line: int) -> None:
    paper.put(PAPER.replace(old, new, 1))
    assert re.match(rf"paper/paper.md:{line}: .", paper.faults()[0])


def test_a_front_matter_that_is_not_yaml_is_refused(paper: Paper) -> None:
    paper.put(PAPER.replace("title: A small study", "title: [unclosed", 1))
    assert "YAML" in paper.faults()[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('template = "paper"', 'template = "poster"'), "template"),
        (('sets = ["laptop"]', 'sets = ["labtop"]'), "no set 'labtop': did you mean laptop?"),
        (('laptop = "sets', 'claim = "sets'), "cannot be a name"),
        (("", ""), "no document .papers. in paper.toml: did you mean paper"),
    ],
)
def test_paper_toml_is_read_strictly(paper: Paper, change: tuple[str, str], message: str) -> None:
    paper.put(TOML.replace(*change), "paper.toml")
    with pytest.raises(project.ProjectError, match=message):
        paper.build("papers")
