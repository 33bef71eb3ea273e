"""The head of a report: its numbers are those of the chapters' tables; two studies share one results folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bs4 import Tag
from click.testing import CliRunner

from hpc_utils import paths, records
from hpc_utils.analyze import anomalies
from hpc_utils.cli import main
from hpc_utils.publish import cells, exports, formatting
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.chapters import conclude
from hpc_utils.publish.report import bind
from hpc_utils.records.study import ReportChapter
from tests.support import soak
from tests.train import tokens

from .browser import tried
from .conftest import execution, own_style
from .test_lookup import soup

CURVES, SINGLE = "curves", "single"  # a study of scaling; one on one rank
ROW = "curves-efficiency[kind=strong, baseline=none, world_size=2]"


@pytest.fixture(scope="module")
def two(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Results of two studies, `hpc report` after each, with a chapter on all runs in between; and the first's page before the
    second's runs were there."""
    results = shutil.copytree(sets / "plain", tmp_path_factory.mktemp("two") / "results")
    with own_style(), paths.results_at(results):
        laptop = records.read_study("laptop")
        (results / "studies/laptop.json").unlink()
        runs = records.load().runs
        one = (runs.precision == "bf16") & (runs.parallel == "none")
        for name, own in ((CURVES, runs[runs.precision == "fp32"]), (SINGLE, runs[one])):
            chapters = [ReportChapter(notebook="06_paper_figures")]
            wanted = [run for run in laptop.runs if run.run_id in set(own.run_id)]
            about = {"name": name, "title": f"Of {name}", "chapters": chapters, "runs": wanted}
            laptop.model_copy(update=about).write()
        later = results.with_name("later")
        later.mkdir()
        others = set(runs.run_id) - records.read_study(CURVES).run_ids
        for run in others:
            (results / "runs" / run).rename(later / run)
        conclude(CURVES)
        before = (results / "report" / CURVES / "index.html").read_text()
        execution(results, "03_scaling", Chapter("03_scaling").close())
        for run in others:
            (later / run).rename(results / "runs" / run)
        conclude(SINGLE)
    return results, before


def answer(part: Tag) -> dict[str, str]:
    """{heading: number} of what a study reached."""
    parts = part.select_one(".answer").select("div")
    return {one.dt.get_text(): one.dd.get_text() for one in parts}


def test_the_answer_is_that_of_the_tables(two: tuple[Path, str]) -> None:
    exported, page = exports.read_exports(two[0]), soup(two[0] / "report" / CURVES / "index.html")
    found, shown = records.load(two[0], study=CURVES), answer(page)
    cited = {
        "efficiency on 2 ranks": ROW, "throughput": "curves-throughput[world_size=2, global_batch=512]",
        "test accuracy": "curves-learned[world_size=2, global_batch=512]",
    }  # fmt: skip
    for heading, cell in cited.items():
        assert shown[heading] == formatting.text(cells.cell(exported, cells.parse(cell)), "interval")
    verdicts = exported.frame("curves-targets").verdict.value_counts().sort_index()
    assert shown["targets"] == ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
    assert verdicts.sum() == 2 and "not measured" not in verdicts, "as the study has two ranks"
    wrong = anomalies.counts(anomalies.find_anomalies(found.runs))
    assert (
        [finding.get_text() for finding in page.select("#top .finding summary strong")] == list(wrong.finding) != []
    )
    assert shown["what looks wrong"] == ", ".join(f"{row.finding} ({row.count})" for row in wrong.itertuples())
    rows = [row.td.get_text() for row in page.select("#top tbody tr")]
    assert rows == ["strong, batch 512, cnn on digits, fp32", "weak, 512 a device, cnn on digits, fp32"]


def test_another_study_leaves_a_report_as_it_was(two: tuple[Path, str]) -> None:
    results, before = two
    page = results / "report" / CURVES / "index.html"
    assert page.read_text() == before
    assert bind(results, CURVES) == page and page.read_text() == before
    stale = {page.parent.name for page in results.glob("report/**/index.html") if soup(page).select("#stale")}
    assert stale == {"report"}, "the chapter on all runs, which the list of studies shows"


def test_the_index_leads_to_each_study(two: tuple[Path, str]) -> None:
    results, _ = two
    page = soup(results / "report/index.html")
    assert page.h1.get_text().count("esults") == 1 and "No chapter" not in page.get_text()
    studies = page.select("#top .study")
    assert [study.code.get_text() for study in studies] == [CURVES, SINGLE]
    for study in studies:
        own = soup(results / "report" / study.a["href"])
        assert own.h1.get_text() == study.a.get_text() and answer(own) == answer(study)
    pages = [page, *(soup(results / "report" / study.a["href"]) for study in studies)]
    everywhere, *of_studies = [[line.get_text() for line in of.select("#top .finding li")] for of in pages]
    assert everywhere and {*everywhere} >= {line for lines in of_studies for line in lines}
    assert "efficiency on 2 ranks" not in answer(studies[1]) and "throughput" in answer(studies[1])
    (results / "report" / SINGLE / "index.html").unlink()
    bind(results, CURVES)
    unwritten = soup(results / "report/index.html").select("#top .study")[1]
    assert not unwritten.a and f"hpc report {SINGLE}" in unwritten.get_text()
    bind(results)
    assert (results / "report" / SINGLE / "index.html").exists()


def test_tokens_and_every_metric_stand_in_the_report(words: Path) -> None:
    exported = exports.read_exports(words)
    shown = answer(soup(words / "report/words/index.html"))
    cited = {"tokens per second": "words-unit-rates", "test perplexity": "words-learned[metric=test_perplexity]"}
    for heading, cell in cited.items():
        assert shown[heading] == formatting.text(cells.cell(exported, cells.parse(cell)), "interval")
    exact = tokens.exact(tokens.make().test)
    assert exported.frame("words-learned").set_index("metric").value.to_dict() == pytest.approx(
        {f"test_{name}": exact[name] for name in ("accuracy", "penalty", "perplexity")}
    )


@pytest.mark.parametrize("size", [soak("1366,768"), "500,900"])
def test_the_answer_is_on_the_first_screen(two: tuple[Path, str], tmp_path: Path, size: str) -> None:
    script = """
      const bottom = (selector) => document.querySelector(selector).getBoundingClientRect().bottom;
      seen.fits = bottom(".answer") < innerHeight && bottom("#top h2") < innerHeight;
    """
    for page in (f"{CURVES}/index.html", "index.html"):
        assert tried(two[0] / "report" / page, tmp_path, script, size=size) == {"fits": True}


def test_a_study_that_measured_nothing_names_the_command(result_set: Path) -> None:
    shutil.rmtree(result_set / "runs")
    done = CliRunner().invoke(main, ["report", "laptop"])
    assert done.exit_code == 0, done.output
    for page in ("report/index.html", "report/laptop/index.html"):
        head = soup(result_set / page).select_one("#top")
        assert "hpc study run laptop" in head.select_one(".alert").get_text() and not head.select(".answer")
