"""`hpc paper new`: the page that it writes builds at once, all its numbers are cells, and nothing is overwritten."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pypdf
import pytest
from click.testing import CliRunner, Result
from matplotlib.figure import Figure

from companions.documents import draft
from hpc_utils import cli, paths, records
from hpc_utils.analyze import cost, scaling
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.plots.chart import Chart
from tests.publish.conftest import execution
from tests.support import copy_runs, pdf_text

from .conftest import PROJECT, REFERENCE, ROOT


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout without results."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper/paper.toml").write_text(PROJECT)
    return tmp_path


@pytest.fixture
def study(root: Path) -> Path:
    """`results/` with the runs of one rank of the laptop study, and their throughput as chapter 03 exports it."""
    results = root / "results"
    copy_runs(REFERENCE / "epyc-2core", results, "*ddp1-*")
    shutil.copytree(REFERENCE / "epyc-2core/studies", results / "studies")
    chapter = Chapter("03_scaling", study="laptop", label="scaling")
    chapter.export(cost.summary(chapter.records, "laptop"), "summary", "The runs.")
    data = scaling.throughput(chapter.runs)
    chapter.export(data, "throughput", "Throughput of every configuration.", measure="throughput")
    figure = Figure(figsize=(4, 2))
    chapter.figure(Chart(figure, data[["throughput"]], "throughput", "Throughput."))
    execution(results, "laptop/03_scaling", chapter.close())
    return results


def paper(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["paper", *arguments])


def pdf(root: Path, name: str) -> pypdf.PdfReader:
    done = paper(name)
    assert done.exit_code == 0, done.output
    return pypdf.PdfReader(root / f"paper/build/{name}.pdf")


def test_the_page_of_a_real_study(root: Path) -> None:
    shutil.copytree(REFERENCE / "epyc-2core", root / "results")
    assert paper("new", "my-page", "--study", "laptop").exit_code == 0
    toml = (root / "paper/paper.toml").read_text()
    assert toml.startswith(PROJECT.replace("[sets]\n", '[sets]\nmine = "results"\n')), "comments and order are kept"
    source = (root / "paper/my-page.md").read_text()
    typed = re.sub(r"\{\{.*?\}\}|\]\(.*?\)\{.*?\}|fp32|bf16|95\\ % \w*\s?intervals", "", source)
    assert not re.search(r"\d", typed), "each number is cited"
    assert len(pdf(root, "my-page").pages) == 1
    shown = pdf_text(root / "paper/build/my-page.pdf")
    assert all(part in shown for part in ("Figure 1.", "Table 1. The targets", "Source: chapter 06_paper_figures"))
    assert re.search(
        r"strong scaling in \w+ reaches [\d ]+ samples/s \[.*\] with an efficiency of [\d.]+ % \[", shown
    )


def test_the_document_in_the_readme_is_whole(root: Path) -> None:
    shutil.copytree(REFERENCE / "epyc-2core", root / "results")
    blocks = dict(re.findall(r"^```(markdown|toml)\n(.*?)^```", (ROOT / "paper/README.md").read_text(), re.M | re.S))
    (root / "paper/paper.toml").write_text(blocks["toml"])
    (root / "paper/my-page.md").write_text(blocks["markdown"])
    pdf(root, "my-page")
    promised = re.search(r'with the sentence "(.*?)"', (ROOT / "paper/README.md").read_text(), re.S)[1]
    assert promised.replace("\n", " ") in pdf_text(root / "paper/build/my-page.pdf")


def test_a_study_on_one_rank_has_a_page_about_its_throughput(root: Path, study: Path) -> None:
    done = paper("new", "alone", "--study", "laptop")
    assert done.exit_code == 0, done.output
    pdf(root, "alone")
    shown = pdf_text(root / "paper/build/alone.pdf")
    assert "Throughput (samples/s)" in shown and "Figure 1. Throughput." in shown and "Efficiency" not in shown
    assert "not complete: 18" in " ".join(shown.split())


def test_a_page_has_the_tokens_and_every_metric(root: Path, words: Path) -> None:
    shutil.copytree(words, root / "results")
    assert paper("new", "words").exit_code == 0
    pdf(root, "words")
    page = (root / "paper/words.md").read_text()
    assert page.count("words-unit-rates.value") == 1 and page.count("words-learned.value") == 3


def test_only_runs_of_its_own_study_make_a_page_stale(root: Path, study: Path) -> None:
    """Runs of others do not, although a chapter about all runs of the set is then stale."""
    paper("new", "alone", "--study", "laptop")
    execution(study, "03_scaling", Chapter("03_scaling").close())
    copy_runs(REFERENCE / "rehearsal", study, limit=2)
    pdf(root, "alone")
    record = next(study.glob("runs/cnn-digits-ddp1-fp32-b512-*/epochs.csv"))
    record.write_text(record.read_text().replace("1", "2", 1))
    done = paper("alone")
    assert done.exit_code == 2 and "1 fault " in done.output and "hpc chapter 03_scaling" in done.output
    assert "18 runs of laptop (`hpc study run" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slides"], "choose another name"),
        (["Slides"], "cannot be a name"),
        (["other", "--study", "labtop"], "did you mean laptop"),
        (["other", "--study", "bare"], "hpc chapter 06_paper_figures -p study=bare"),
        (["other", "--study", "begun"], "6 complete of 24 runs"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused(
    root: Path, study: Path, arguments: list[str], message: str
) -> None:
    index = json.loads((study / "studies/laptop.json").read_text())
    measured = [run for run in index["runs"] if (study / "runs" / run["run_id"]).exists()]
    for name, runs in (("begun", index["runs"]), ("bare", measured)):
        (study / f"studies/{name}.json").write_text(json.dumps(index | {"name": name, "runs": runs}))
    done = paper("new", *arguments)
    assert done.exit_code == 2 and message in done.output
    assert (root / "paper/paper.toml").read_text() == PROJECT
    assert [path.name for path in (root / "paper").iterdir()] == ["paper.toml"]


def test_every_template_fills_from_a_set_and_builds(root: Path) -> None:
    """From the laptop's study with a plan and without profiles."""
    for name in ("references.bib", "architecture.svg"):
        shutil.copy(ROOT / "paper" / name, root / "paper")
    results = shutil.copytree(REFERENCE / "epyc-2core", root / "results")
    plan = Chapter("07_proposal", label="plan", required=False)
    measures = {"request": "cost", "studies": "cost", "total": "", "packages": "", "resources": ""}
    for name, measure in measures.items():
        table = pd.read_csv(REFERENCE / f"epyc-avx512/tables/plan-{name}.csv")
        plan.export(table, name, "Of the plan.", measure=measure, runs=())
    plan.figure(Chart(Figure(figsize=(7, 2)), pd.DataFrame({"month": [1]}), "gantt", "The plan.").of(()))
    execution(results, "07_proposal", plan.close())
    pages = {"paper": range(4, 7), "proposal": range(6, 9), "proposal-500": range(6, 9), "pitch": range(5, 6)}
    assert {"page", *pages} == draft.TEMPLATES.keys()
    for template in pages:
        assert paper("new", f"my-{template}", "--template", template).exit_code == 0
    done = paper(*(f"my-{template}" for template in pages))
    assert done.exit_code == 0, done.output
    said = {template: pdf_text(root / f"paper/build/my-{template}.pdf") for template in pages}
    for template, length in pages.items():
        assert len(pypdf.PdfReader(root / f"paper/build/my-{template}.pdf").pages) in length, template
        assert "72.5 % [66.0, 79.6]" in said[template] and "not measured" in said[template]
    assert all("150 node-hours" in said[template] for template in ("proposal", "pitch"))
    assert "ask for 500 node-hours" in said["proposal-500"]


def test_the_numbers_of_a_text_are_of_one_variant_which_it_names(root: Path, study: Path) -> None:
    """... although the other one is the fastest on the weak curve."""
    shutil.copy(ROOT / "paper/references.bib", root / "paper")
    efficiency = pd.read_csv(REFERENCE / "epyc-2core/tables/laptop-efficiency.csv")
    targets = pd.read_csv(REFERENCE / "epyc-2core/tables/laptop-targets.csv")
    chapter = Chapter("03_scaling", study="laptop", label="scaling")
    chapter.export(scaling.throughput(chapter.runs), "throughput", "Throughput.", measure="throughput")
    for name, table, measure in (("efficiency", efficiency, "efficiency"), ("targets", targets, "value")):
        pre, post = (table.assign(settings=f'workload_args={{"norm": "{norm}"}}') for norm in ("pre", "post"))
        if name == "efficiency":
            for variant, fast in ((pre, "weak"), (post, "strong")):
                variant.loc[variant.kind == fast, ["throughput", "throughput_low", "throughput_high"]] *= 2
        default = table[table.kind == "weak"].assign(settings="defaults", world_size=1, ranks=1)
        variants = pd.concat([pre, post, default]).drop(columns=["runs", "runs_base"], errors="ignore")
        chapter.export(variants, name, "Of variants.", measure=measure, runs=())
    execution(study, "laptop/03_scaling", chapter.close())
    for template in ("paper", "proposal", "pitch"):
        done = paper("new", f"my-{template}", "--study", "laptop", "--template", template)
        assert done.exit_code == 0, done.output
        source = (root / f"paper/my-{template}.md").read_text()
        assert set(re.findall(r"norm=(\w+)", source)) == {"post"} and "with norm = [post]{.setting}" in source
    assert "nan" not in (root / "paper" / paper_of("page", "my-")).read_text()
    pdf(root, "my-paper")
    assert "norm target precision" in " ".join(pdf_text(root / "paper/build/my-paper.pdf").split())


def test_a_draft_about_a_script_claims_nothing_of_the_compendium_s_loop(root: Path, study: Path, monkeypatch) -> None:
    ours = [(root / f"paper/{paper_of(template)}").read_text() for template in draft.TEMPLATES]
    loaded = records.load(study, study="laptop")
    of_script = replace(loaded, runs=loaded.runs.assign(workload="mine.py"))
    monkeypatch.setattr(records, "load", lambda *arguments, **options: of_script)
    theirs = [(root / f"paper/{paper_of(template, 'script-')}").read_text() for template in draft.TEMPLATES]
    claims = ("training notebook", "test sample", "A notebook is the job", "checkpoint before")
    assert not any(re.search(r"[^\n]\n::: \{", text) for text in ours + theirs), "a box stands alone"
    for claim in claims:
        assert any(claim in text for text in ours) and not any(claim in text for text in theirs), claim


def paper_of(template: str, prefix: str = "") -> str:
    """The file of a new document about the laptop study."""
    name = f"{prefix}{template}"
    done = paper("new", name, "--study", "laptop", "--template", template)
    assert done.exit_code == 0, done.output
    return f"{name}.md"


def test_a_set_of_several_studies_has_a_draft(root: Path) -> None:
    done = paper("new", "mine", "--results", str(REFERENCE / "shares"), "--template", "paper")
    assert done.exit_code == 0, done.output
    source = (root / "paper/mine.md").read_text()
    assert re.search(r"shares:scaling-efficiency\.efficiency\[kind=strong, world_size=\d+, .*\]\|interval", source)


def test_calculations_by_hand_add_up() -> None:
    source = (draft.FOLDER / "proposal.md.j2").read_text()
    rows = [re.findall(r"\[([\d.]+)\]\{\.plan\}", line) for line in source.splitlines()]
    estimated = [[*map(float, row)] for row in rows if len(row) == 5]
    assert len(estimated) == 6 and all(math.prod(row[:4]) == row[4] for row in estimated)
    reserve, total = (
        float(re.search(rf"^\| {name} \|.*\[(\d+)\]", source, re.M)[1]) for name in ("reserve", r"\*all\*")
    )
    assert sum(row[4] for row in estimated) + reserve == total


def test_without_its_packages_the_build_names_the_command() -> None:
    code = "import sys; sys.modules['typst'] = None; from hpc_utils.cli import main; main(['paper', 'slides'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=os.environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "make paper" in done.stderr
