"""The report of a result set: which chapters, tables and runs it has, and what a browser does with them."""

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
from bs4 import BeautifulSoup, Tag
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from hpc_utils import records
from hpc_utils.cli import main
from hpc_utils.publish import exports
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.report import bind, lookup
from hpc_utils.records import RunFolder, packed

from .browser import tried

MANY = 200
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# What scripts of these tests share.
LOOK = """
  const count = () => [...document.querySelectorAll("#runs tbody tr")].filter((row) => row.offsetParent).length;
"""


def soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(), "html.parser")


@pytest.fixture(scope="module")
def bound(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a set whose chapter shows a figure; all tests read the same."""
    exported = shutil.copytree(sets / "exported", tmp_path_factory.mktemp("bound") / "results")
    shown = {"image/png": {"alt": "Efficiency over ranks.", "figure": "laptop-efficiency"}}
    cells = [
        new_markdown_cell("# 6 The figures"),
        new_code_cell("ch.figure()", outputs=[new_output("display_data", {"image/png": PIXEL}, metadata=shown)]),
    ]
    nbformat.write(new_notebook(cells=cells), exported / "notebooks/laptop/06_paper_figures.ipynb")
    (exported / "runs/cnn-digits-none1-bf16-b512-r1-c9304dd5/ranks.csv").write_text("rank\n")
    return bind(exported)


def test_tables_and_figures_lead_to_runs_chapter_and_files(bound: Path) -> None:
    page = soup(bound)
    row = page.find(id="table-laptop-efficiency")
    assert [cell.get_text() for cell in row.find_all("td")][:4] == [
        "laptop-efficiency", "Efficiency of every point.", "efficiency (share)", "24 runs",
    ]  # fmt: skip
    links = [link["href"] for link in row.find_all("a")]
    assert links == ["#runs", "#06-paper-figures", "../tables/laptop-efficiency.csv"]
    figure = page.find("figure")
    assert figure.button.img["alt"] == "Efficiency over ranks." and "12 runs" in figure.figcaption.get_text()
    pdf, csv = figure.select("figcaption a")[-2:]
    assert pdf["href"] == "../figures/laptop-efficiency.pdf" and csv["download"] == "laptop-efficiency.csv"
    assert "0.7231" in unquote(csv["href"].removeprefix("data:text/csv,"))
    away = [link["href"] for link in page.select("section a[href]") if not link["href"].startswith(("#", "data:"))]
    assert len(away) > 24 and all((bound.parent / unquote(link)).exists() for link in away)
    ids = [element["id"] for element in page.find_all(id=True)]
    assert len(ids) == len(set(ids))
    assert {unquote(link["href"][1:]) for link in page.select('a[href^="#"]')} <= set(ids)
    assert "is not the execution" in page.select_one("#top #stale").get_text()


def test_a_number_leads_to_its_runs(bound: Path, tmp_path: Path) -> None:
    script = f"""{LOOK}
      seen.all = count();
      document.querySelector("#figure-laptop-efficiency a[data-runs]").click();
      await settled();
      seen.behind = [count(), document.getElementById("behind").textContent];
      const hidden = [...document.querySelectorAll("#runs tbody tr")].find((row) => row.hidden);
      location.hash = "#" + encodeURIComponent(hidden.id);
      await settled();
      seen.revealed = [count(), document.getElementById("behind").textContent];
      document.querySelector("#table-laptop-efficiency a[data-runs]").click();
      document.querySelector('nav a[href="#runs"]').click();
      await settled();
      seen.again = count();
    """
    seen = tried(bound, tmp_path / "profile", script)
    behind = [12, "The runs behind laptop-efficiency"]
    assert seen == {"all": 24, "behind": behind, "revealed": [24, ""], "again": 24}


def test_a_run_s_name_breaks_neither_page_nor_address(exported: Path, tmp_path: Path) -> None:
    run = 'a "b" <i>#c?d%41</script>'.replace("/", "")
    (exported / "runs" / run).mkdir()
    page = bind(exported)
    row = soup(page).find(id=f"run-{run}")
    assert (page.parent / unquote(row.a["href"])).samefile(exported / "runs" / run)
    script = "seen.target = document.getElementById(decodeURIComponent(location.hash.slice(1))).cells[0].textContent"
    assert tried(page, tmp_path / "profile", script, f"#run-{quote(run)}") == {"target": run}


@pytest.mark.soak
def test_many_runs_stay_small_and_quick(result_set: Path, tmp_path: Path) -> None:
    copies = sorted((result_set / "runs").iterdir())
    for number in range(len(copies), MANY):
        first = copies[number % len(copies)]
        run = first.with_name(f"{first.name[:-9]}-{number:08x}")
        shutil.copytree(first, run, copy_function=os.link)
    chapter = Chapter("03_scaling")
    ids = chapter.runs.run_id
    for number in range(100):
        chapter.export(pd.DataFrame({"seconds": [number / 7]}), f"topic-{number}", "What this is.", runs=ids[number:])
    chapter.close()
    page = bind(result_set)
    assert page.stat().st_size < 2e6
    start = time.monotonic()
    assert tried(page, tmp_path / "profile", f"{LOOK} seen.count = count();") == {"count": MANY}
    assert time.monotonic() - start < 60


def runs_of(results: Path) -> dict[str, dict[str, Tag]]:
    """{run: {column: cell}}."""
    table = soup(bind(results)).select_one("#runs table")
    columns = [head.get_text() for head in table.select("th")]
    rows = {row["id"].removeprefix("run-"): row.select("td") for row in table.select("tbody tr")}
    return {run: dict(zip(columns, cells, strict=True)) for run, cells in rows.items()}


def test_every_run_has_its_row_with_state_and_reason(result_set: Path) -> None:
    refused, failed, absent, damaged, whole = sorted((result_set / "runs").iterdir())[:5]
    recorded = records.load(result_set).runs.set_index("run_id").loc[whole.name]
    (refused / "ranks.csv").write_text("rank\n")
    RunFolder(failed).set_status("failed", "rank 1 raised <ValueError>")
    shutil.rmtree(absent)
    (damaged / "run.json").write_text("[")
    runs = runs_of(result_set)
    asked = json.loads((result_set / "studies/laptop.json").read_text())["runs"]
    assert list(runs) == list(dict.fromkeys(one["run_id"] for one in asked)), "in the study's order"
    states = {run: cells["state"].get_text() for run, cells in runs.items()}
    assert states[refused.name] == "refused: 0 ranks left records, but the world size is 1"
    assert states[failed.name] == "failed: rank 1 raised <ValueError>" and states[absent.name] == "absent"
    assert states[damaged.name].startswith("refused: run.json")
    assert (runs[refused.name]["precision"].get_text(), runs[failed.name]["samples/s"].get_text()) == ("bf16", "")
    expected = {
        "state": "complete",
        "series": "strong, weak",
        "ranks": "1",
        "samples/s": f"{recorded.throughput:,.0f}",
    }
    cells = runs[whole.name]
    assert {name: cells[name].get_text() for name in expected} == expected
    assert "optimizer=adamw" in cells["parameters"].get_text()


def test_a_packed_run_leads_to_the_file_that_holds_it(result_set: Path) -> None:
    shutil.copy(result_set / "studies/laptop.json", result_set / "studies/other.json")
    index = json.loads((result_set / "studies/other.json").read_text())
    (result_set / "studies/other.json").write_text(json.dumps(index | {"name": "other"}))
    packed.pack(result_set)
    runs = runs_of(result_set)
    assert {cells["run"].a["href"] for cells in runs.values()} == {"../runs.jsonl"}
    assert next(iter(runs.values()))["series"].get_text() == "laptop: baseline, other: baseline"


# --- Which chapters and exports ---


def lay(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / f"notebooks/{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(new_notebook(cells=[new_markdown_cell(f"# {name}")]), path)


def titles(page: Path) -> list[str]:
    return [title.get_text() for title in soup(page).select("article h2")]


def test_of_a_set_all_chapters_in_their_order(exported: Path) -> None:
    page = exported / "report/index.html"
    assert not soup(bind(exported)).select("#stale")
    lay(exported, "03_scaling", "other/02_ddp", "laptop/01_baseline")
    done = CliRunner().invoke(main, ["report", "--results", str(exported)])
    assert done.exit_code == 0 and done.output.strip() == str(page), done.output
    assert titles(page) == ["laptop/01_baseline", "other/02_ddp", "03_scaling", "06_paper_figures"]


def test_of_a_study_its_chapters_their_exports_and_its_runs(exported: Path, tmp_path: Path) -> None:
    index = json.loads((exported / "studies/laptop.json").read_text())
    index |= {"name": "half", "runs": index["runs"][:2]}
    index["chapters"] = [{"notebook": name, "run": None} for name in ("03_scaling", "02_ddp", "01_baseline")]
    (exported / "studies/half.json").write_text(json.dumps(index))
    lay(exported, "03_scaling", "half/02_ddp", "half/03b_limits", "02_ddp", "other/01_baseline")
    whole = Chapter("03_scaling")
    whole.export(pd.DataFrame({"seconds": [1.5]}), "topic", "What this is.", runs=whole.runs.run_id[3:])
    whole.close()
    page = bind(exported, "half", tmp_path / "page.html")
    expected = ["03_scaling", "half/02_ddp", "half/03b_limits"]
    assert titles(page) == expected, "a study's own chapters precede those of all, and one that it does not name"
    assert not (exported / "report").exists()
    link = soup(page).select_one("#runs tbody a")["href"]
    assert (page.parent / link).is_dir(), "links work from wherever the page lies"
    everything = records.load(exported), exports.read_exports(exported)
    half, laptop = (lookup.gather(exported, *everything, study) for study in ("half", "laptop"))
    assert list(half.exported.tables) == ["topic"] and not half.exported.figures
    assert set(half.series) == set(half.record_set.runs.run_id), "its own runs, and those behind its exports"
    assert len(laptop.exported.tables) == 2 and laptop.exported.figures


@pytest.mark.parametrize(("words", "reason"), [(["none"], "no study 'none'"), ([], "no result set")])
def test_what_cannot_be_reported_is_refused(exported: Path, words: list[str], reason: str) -> None:
    folder = exported if words else exported.parent
    done = CliRunner().invoke(main, ["report", *words, "--results", str(folder)])
    assert done.exit_code == 2 and reason in done.output
