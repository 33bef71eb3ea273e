"""From a table to its runs and their records, and runs looked up: the report's tables, also in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from urllib.parse import quote, unquote

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from markupsafe import escape
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from hpc_utils import records
from hpc_utils.publish import chapters, evidence
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.report import lookup
from hpc_utils.records import RunFolder, packed

from .browser import tried
from .conftest import copied, export

MANY = 1000
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT = (
    "Two ranks reach [72 %](#table-laptop-efficiency); [gone](#table-none-such), "
    "[one run](#run-cnn-digits-none1-fp32-b512-r1-dff58014)."
)
# What scripts of these tests share.
LOOK = """
  const rows = (part) => [...document.querySelectorAll(`#${part} tbody tr[id]`)];
  const info = (part) => document.querySelector(`#${part} .dt-info`).textContent;
  const look = async (part, words) => {
    const field = document.querySelector(`#${part} input`);
    field.value = words;
    field.dispatchEvent(new Event("input"));
    await settled();
    return rows(part).length;
  };
"""


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a set whose chapter shows a figure and cites a table; all tests read the same."""
    exported = export(copied(tmp_path_factory.mktemp("bound") / "results"))
    shown = {"image/png": {"alt": "Efficiency over ranks.", "figure": "laptop-efficiency"}}
    notebook = exported / "notebooks/laptop/06_paper_figures.ipynb"
    told = json.loads(notebook.read_text())["metadata"]["exported"]
    cells = [
        new_markdown_cell(f"# 6 The figures\n\n{told}"),
        new_code_cell("ch.figure()", outputs=[new_output("display_data", {"image/png": PIXEL}, metadata=shown)]),
        new_code_cell("Markdown()", outputs=[new_output("display_data", {"text/markdown": TEXT})]),
    ]
    nbformat.write(new_notebook(cells=cells), notebook)
    (exported / "runs/cnn-digits-none1-bf16-b512-r1-c9304dd5/ranks.csv").write_text("rank\n")
    return chapters.bind(exported)


@pytest.fixture(scope="module")
def soup(bound: Path) -> BeautifulSoup:
    return BeautifulSoup(bound.read_text(), "html.parser")


def cells(row) -> list[str]:
    return [cell.get_text().replace("\xa0", " ") for cell in row.find_all("td")]


def test_a_table_leads_to_its_runs_chapter_and_file(soup: BeautifulSoup, bound: Path) -> None:
    row = soup.find(id="table-laptop-efficiency")
    name, says, quantities, rests, chapter, files = cells(row)
    assert (name, says, rests, files) == ("laptop-efficiency", "Efficiency of every point.", "24 runs", "CSV")
    assert quantities == "efficiency (share)" and chapter.startswith("laptop-06_paper_figures, ")
    links = [link["href"] for link in row.find_all("a")]
    assert links == ["#runs", "#06-paper-figures", "../tables/laptop-efficiency.csv"]
    away = [link["href"] for link in soup.select("section a[href]") if not link["href"].startswith("#")]
    assert len(away) > 24 and all((bound.parent / unquote(link)).exists() for link in away)


def test_tables_and_runs_of_a_chapter_s_text_lead_to_their_rows(soup: BeautifulSoup) -> None:
    text = soup.select_one(".output.prose")
    assert [link["href"] for link in text.find_all("a")] == [
        "#table-laptop-efficiency", "#run-cnn-digits-none1-fp32-b512-r1-dff58014",
    ]  # fmt: skip
    assert "gone" in text.get_text()


def test_a_figure_has_a_caption_with_its_runs_and_files(soup: BeautifulSoup) -> None:
    figure = soup.find("figure")
    assert figure.button.img["alt"] == "Efficiency over ranks."
    caption = figure.figcaption.get_text()
    assert caption.startswith("Efficiency over ranks.") and "12 runs" in caption
    files = {link.get_text() for link in figure.select("figcaption a") if "figures/" in link["href"]}
    assert files == {"PDF", "PNG", "CSV"}
    assert soup.find(id="figure-laptop-efficiency") and soup.find(id="table-laptop-points")


def test_every_place_is_one_and_every_link_has_one(soup: BeautifulSoup) -> None:
    ids = [element["id"] for element in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    assert {unquote(link["href"][1:]) for link in soup.select('a[href^="#"]')} <= set(ids)


def test_runs_are_looked_up(bound: Path, tmp_path: Path) -> None:
    script = f"""{LOOK}
      seen.all = info("runs");
      const top = (element) => element.getBoundingClientRect().top;
      seen.head = top(document.querySelector("#runs thead")) >= top(document.querySelector("#runs .dt-layout-table"));
      seen.words = await look("runs", "DDP2  bf16");
      seen.parameter = await look("runs", "seed=2 none1");
      seen.refused = [await look("runs", "refused"), rows("runs")[0].textContent.includes("0 ranks left records")];
      seen.none = [await look("runs", "no such run"), info("runs")];
      document.querySelector("#figure-laptop-efficiency a[data-runs]").click();
      await settled();
      seen.behind = [rows("runs").length, document.getElementById("behind").textContent];
      document.querySelector("#runs a[data-find=complete]").click();
      await settled();
      seen.state = [rows("runs").length, document.getElementById("behind").textContent];
      await look("runs", "none1");
      location.hash = "#run-cnn-digits-ddp2-fp32-b512-r2-35399a99";
      await settled();
      seen.revealed = rows("runs").length;
      seen.opened = [];
      for (const button of document.querySelectorAll("#runs .dt-buttons > * > button, #runs .dt-buttons > button")) {{
        button.click();
        await settled();
        seen.opened.push(Boolean(document.querySelector(".dtsb-searchBuilder, .dt-button-collection")));
      }}
    """
    seen = tried(bound, tmp_path / "profile", script)
    assert seen == {
        "all": "24 rows", "head": True, "words": 6, "parameter": 2, "refused": [1, True], "none": [0, "no rows of 24"],
        "behind": [12, "The runs behind laptop-efficiency"], "state": [23, ""], "revealed": 24, "opened": [True, True],
    }  # fmt: skip


def test_a_run_s_name_breaks_neither_page_nor_address(exported: Path, tmp_path: Path) -> None:
    run = 'a "b" <i>#c?d%41</script>'.replace("/", "")
    (exported / "runs" / run).mkdir()
    page = chapters.bind(exported)
    row = BeautifulSoup(page.read_text(), "html.parser").find(id=f"run-{run}")
    assert (page.parent / unquote(row.a["href"])).samefile(exported / "runs" / run)
    script = "seen.target = document.getElementById(decodeURIComponent(location.hash.slice(1))).cells[0].textContent"
    assert tried(page, tmp_path / "profile", script, f"#run-{quote(run)}") == {"target": run}


def test_a_thousand_runs_stay_small_and_quick(result_set: Path, tmp_path: Path) -> None:
    copies = sorted((result_set / "runs").iterdir())
    for number in range(len(copies), MANY):
        first = copies[number % len(copies)]
        run = first.with_name(f"{first.name[:-9]}-{number:08x}")
        shutil.copytree(first, run, copy_function=os.link, ignore=shutil.ignore_patterns("run.json"))
        asked = json.loads((first / "run.json").read_text())
        asked["config"] |= {"seed": number, "lr": number / 7}
        (run / "run.json").write_text(json.dumps(asked))
    chapter = Chapter("03_scaling")
    ids = chapter.runs.run_id
    for number in range(200):
        chapter.export(pd.DataFrame({"seconds": [number / 7]}), f"topic-{number}", "What this is.", runs=ids[number:])
    chapter.close()
    page = chapters.bind(result_set)
    assert page.stat().st_size < 5e6
    script = f"""{LOOK}
      seen.count = info("runs");
      const start = performance.now();
      seen.found = await look("runs", "seed={MANY - 1}");
      seen.quick = performance.now() - start < 2000;
      document.querySelector("#table-topic-199 a[data-runs]").click();
      await settled();
      seen.behind = rows("runs").length
    """
    start = time.monotonic()
    seen = tried(page, tmp_path / "profile", script)
    assert time.monotonic() - start < 60
    assert seen == {"count": f"{MANY:,} rows", "found": 1, "quick": True, "behind": MANY - 199}


# --- The rows of runs ---


def runs_of(results: Path) -> tuple[lookup.Table, dict[str, dict[str, str]]]:
    """The table of runs, and {run: {column: text}}."""
    found = lookup.of(evidence.gather(results), results / "report/index.html", {})
    table = found.tables[-1]
    texts = {
        row.anchor[4:]: [BeautifulSoup(escape(cell), "html.parser").get_text() for cell in row.cells]
        for row in table.rows
    }
    return table, {run: dict(zip(table.columns, own, strict=True)) for run, own in texts.items()}


def test_a_complete_run_has_its_row_in_the_study_s_order(result_set: Path) -> None:
    table, runs = runs_of(result_set)
    asked = json.loads((result_set / "studies/laptop.json").read_text())["runs"]
    assert list(runs) == list(dict.fromkeys(one["run_id"] for one in asked))
    run_id = next(run for run in runs if run.startswith("cnn-digits-ddp2-bf16-b1024-r1"))
    run, recorded = runs[run_id], records.load(result_set).runs.set_index("run_id").loc[run_id]
    expected = {
        "state": "complete", "series": "weak", "workload": "cnn on digits", "parallel": "ddp", "nodes x ranks": "1 x 2",
        "commit": recorded.commit[: len(run["commit"])], "samples/s": f"{recorded.throughput:,.0f}",
    }  # fmt: skip
    assert {name: run[name] for name in expected} == expected and len(run["commit"]) >= 7
    assert "global_batch=1024" in run["parameters"] and any("optimizer=adamw" in note for note in table.notes)
    assert not {"energy (kJ)", "job"} & set(table.columns), "columns without a value are left out"


def test_a_run_that_is_not_complete_has_its_reason(result_set: Path) -> None:
    refused, failed, absent, damaged = sorted((result_set / "runs").iterdir())[:4]
    (refused / "ranks.csv").write_text("rank\n")
    RunFolder(failed).set_status("failed", "rank 1 raised <ValueError>")
    shutil.rmtree(absent)
    (damaged / "run.json").write_text("[")
    (damaged / "provenance.json").write_text("[1]")
    table, runs = runs_of(result_set)
    assert runs[refused.name]["state"] == "refused: 0 ranks left records, but the world size is 1"
    assert runs[refused.name]["precision"] == "bf16"
    assert runs[failed.name]["state"] == "failed: rank 1 raised <ValueError>"
    assert runs[failed.name]["samples/s"] == ""
    assert runs[absent.name]["state"] == "absent"
    assert runs[damaged.name]["state"].startswith("refused: run.json")
    assert (
        BeautifulSoup(escape(table.notes[0]), "html.parser").get_text()
        == "1 absent, 20 complete, 1 failed, 2 refused"
    )


def test_a_packed_run_leads_to_the_file_that_holds_it(result_set: Path) -> None:
    before = runs_of(result_set)[1]
    packed.pack(result_set)
    table, after = runs_of(result_set)
    assert after == before
    links = {BeautifulSoup(escape(row.cells[0]), "html.parser").a["href"] for row in table.rows}
    assert links == {"../runs.jsonl"}


def test_with_several_studies_the_series_name_theirs(result_set: Path) -> None:
    shutil.copy(result_set / "studies/laptop.json", result_set / "studies/other.json")
    _, runs = runs_of(result_set)
    assert next(iter(runs.values()))["series"] == "laptop: baseline, other: baseline"
