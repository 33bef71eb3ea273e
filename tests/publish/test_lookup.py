"""From a number to its runs and their folders, and runs looked up: the page's tables, in a real browser."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote, unquote

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from hpc_utils.publish import chapters
from hpc_utils.publish.chapter import Chapter

from .browser import opened, scripted
from .conftest import copied, export

MANY = 300
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TEXT = (
    "Two ranks reach [72 %](#table-laptop-efficiency); [gone](#table-none-such), "
    "[one run](#run-cnn-digits-none1-fp32-b512-r1-dff58014)."
)


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


def tried(page: Path, profile: Path, script: str, at: str = "", size: str = "1280,900") -> dict:
    """What `script` notes in `seen`, once it is done."""
    script = f"<script>const seen = {{}}; {script}; seen.problems = problems; document.title = JSON.stringify(seen);</script>"
    copy = page.with_name("tried.html")
    copy.write_text(scripted(page.read_text(), FIND + script))
    dom, console = opened(copy, profile, size, at)
    assert console == []
    seen = json.loads(dom.title.get_text())
    assert seen.pop("problems") == []
    return seen


# What scripts of these tests share.
FIND = """<script>
const shown = (part) => [...document.querySelectorAll(`#${part} tbody tr[id]`)].filter((row) => row.checkVisibility());
const look = (part, words) => {
  const field = document.getElementById(`${part}.find`);
  field.value = words;
  field.dispatchEvent(new Event("input"));
  return document.querySelector(`#${part} [role=status]`).textContent;
};
</script>"""


def test_a_table_leads_to_its_runs_folders_and_chapter(soup: BeautifulSoup, bound: Path) -> None:
    row = soup.find(id="table-laptop-efficiency")
    assert row.th.get_text() == "laptop-efficiency"
    assert row.select_one("td.says").get_text() == "Efficiency of every point."
    assert row.select_one("a[data-rests]").get_text() == "24 runs"
    away = [link["href"] for link in soup.select(".part a[href]") if not link["href"].startswith("#")]
    assert len(away) > 24 and all((bound.parent / unquote(link)).exists() for link in away)
    links = [link["href"] for link in row.select("a")]
    assert "#06-paper-figures" in links and "../tables/laptop-efficiency.csv" in links


def test_tables_and_runs_of_a_chapter_s_text_lead_to_their_rows(soup: BeautifulSoup) -> None:
    text = soup.select_one(".output.prose")
    assert [link["href"] for link in text.find_all("a")] == [
        "#table-laptop-efficiency", "#run-cnn-digits-none1-fp32-b512-r1-dff58014",
    ]  # fmt: skip
    assert "gone" in text.get_text()


def test_a_figure_says_what_it_shows_and_where_it_comes_from(soup: BeautifulSoup, bound: Path) -> None:
    figure = soup.find("figure")
    assert figure.find("button").img["alt"] == "Efficiency over ranks."
    caption = figure.figcaption.get_text()
    assert caption.startswith("Efficiency over ranks.") and "from 12 runs, commit " in caption
    files = {link.get_text(): link["href"] for link in figure.select("figcaption a") if "/" in link["href"]}
    assert set(files) == {"PDF", "PNG", "CSV"}
    assert soup.find(id="figure-laptop-efficiency") and soup.find(id="table-laptop-points")


def test_every_place_is_one_and_every_link_has_one(soup: BeautifulSoup) -> None:
    ids = [element["id"] for element in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    told = [value for element in soup.select("[aria-labelledby]") for value in element["aria-labelledby"].split()]
    told += [
        element[name] for name in ("for", "aria-controls", "aria-describedby") for element in soup.select(f"[{name}]")
    ]
    assert {unquote(link["href"][1:]) for link in soup.select('a[href^="#"]')} | set(told) <= set(ids)
    assert not soup.select(".part input:not([type=search])") and len(soup.select("label[for$=find]")) == 3


def test_without_a_script_all_rows_are_there(soup: BeautifulSoup) -> None:
    assert len(soup.select("#runs tbody tr")) == 24 and not soup.select("#runs tr[hidden]")
    assert "Without JavaScript" in soup.find("noscript").get_text()
    assert all(finder.has_attr("hidden") for finder in soup.select(".finder"))


def test_a_run_is_looked_up(bound: Path, tmp_path: Path) -> None:
    seen = tried(
        bound,
        tmp_path / "profile",
        """
        seen.all = look("runs", "");
        seen.words = look("runs", "DDP2  bf16");
        seen.hash = location.hash;
        seen.rows = shown("runs").length;
        seen.parameter = look("runs", "seed=2 parallel=none");
        seen.refused = look("runs", "refused");
        seen.why = shown("runs")[0].textContent.includes("0 ranks left records");
        seen.none = look("runs", "no such run");
        const field = document.getElementById("runs.find");
        look("runs", "none1 fp32 r3");
        field.focus();
        field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
        seen.focus = document.activeElement.ariaLabel;
        document.activeElement.click();
        seen.expanded = document.activeElement.ariaExpanded;
        const more = document.querySelector("#runs tr.more");
        seen.facts = [...more.querySelectorAll("dl div")].map((pair) => pair.textContent);
        seen.differs = [...more.querySelectorAll(".own dt")].map((name) => name.textContent).includes("repeat");
        seen.behind = [...more.querySelectorAll("p a")].map((link) => link.hash);
        document.activeElement.click();
        seen.closed = !document.querySelector("#runs tr.more");
        document.querySelector("#runs .all").click();
        seen.again = [document.querySelector("#runs [role=status]").textContent, document.activeElement.id, location.hash]
        """,
    )
    assert seen["all"] == "24 runs"
    assert (seen["words"], seen["rows"], seen["hash"]) == ("6 of 24 runs", 6, "#runs?find=DDP2++bf16")
    assert seen["parameter"] == "2 of 24 runs"
    assert (seen["refused"], seen["why"], seen["none"]) == ("1 of 24 runs", True, "0 of 24 runs")
    assert seen["focus"].startswith("More about cnn-digits-none1-fp32-b512-r3") and seen["expanded"] == "true"
    assert {"optimizeradamw", "repeat3", "versions.torch2.13.0+cpu"} <= set(seen["facts"]) and seen["differs"]
    assert seen["behind"] == ["#figure-laptop-efficiency", "#table-laptop-efficiency", "#table-laptop-points"]
    assert seen["closed"] and seen["again"] == ["24 runs", "runs.find", "#runs"]


@pytest.mark.parametrize("size", ["1280,900", "500,900"])
def test_the_address_says_what_is_looked_up(bound: Path, tmp_path: Path, size: str) -> None:
    script = """
      seen.count = document.querySelector("#runs [role=status]").textContent;
      seen.field = document.getElementById("runs.find").value;
      seen.overflow = document.documentElement.scrollWidth > innerWidth
    """
    seen = tried(bound, tmp_path / "profile", script, "#runs?find=r1&figure=laptop-efficiency", size)
    assert seen == {"count": "4 of 24 runs behind the figure laptop-efficiency", "field": "r1", "overflow": False}


def test_a_run_s_address_opens_it(bound: Path, tmp_path: Path) -> None:
    run = "cnn-digits-ddp2-fp32-b512-r2-35399a99"
    script = """
      seen.open = document.querySelector("#runs tr.more").previousElementSibling.id;
      seen.focus = document.activeElement.ariaLabel;
      look("runs", "none1");
      seen.closed = !document.querySelector("#runs tr.more");
      location.hash = "#table-laptop-points";
      dispatchEvent(new Event("hashchange"));
      seen.table = document.activeElement.closest("tr").id;
      location.hash = `#${seen.open}`;
      dispatchEvent(new Event("hashchange"));
      seen.again = [shown("runs").length, document.querySelector("#runs tr.more").previousElementSibling.id]
    """
    seen = tried(bound, tmp_path / "profile", script, f"#run-{run}")
    assert seen["open"] == f"run-{run}" and seen["focus"] == f"More about {run}"
    assert seen["closed"] and seen["table"] == "table-laptop-points"
    assert seen["again"] == [24, f"run-{run}"]  # what hid it is taken back


def test_no_column_of_figures_and_tables_is_cut_on_a_laptop_s_screen(tmp_path: Path) -> None:
    script = """
      for (const box of document.querySelectorAll("#figures .box, #tables .box"))
        seen[box.closest("section").id] = box.scrollWidth - box.clientWidth
    """
    page = chapters.bind("epyc-2core", output=tmp_path / "page.html")
    assert tried(page, tmp_path / "profile", script) == {"figures": 0, "tables": 0}


def test_a_run_s_name_breaks_neither_page_nor_address(exported: Path, tmp_path: Path) -> None:
    run = 'a "b" <i>#c?d%41</script>'.replace("/", "")
    (exported / "runs" / run).mkdir()
    page = chapters.bind(exported)
    row = BeautifulSoup(page.read_text(), "html.parser").find(id=f"run-{run}")
    assert (page.parent / unquote(row.a["href"])).samefile(exported / "runs" / run)
    script = 'seen.open = document.querySelector("#runs tr.more").previousElementSibling.id'
    assert tried(page, tmp_path / "profile", script, f"#run-{quote(run)}") == {"open": f"run-{run}"}


def test_hundreds_of_runs_stay_small_and_all_are_found_without_a_request(result_set: Path, tmp_path: Path) -> None:
    copies = sorted((result_set / "runs").iterdir())
    for number in range(len(copies), MANY):
        first = copies[number % len(copies)]
        run = first.with_name(f"{first.name[:-9]}-{number:08x}")
        shutil.copytree(first, run, copy_function=os.link, ignore=shutil.ignore_patterns("run.json"))
        asked = json.loads((first / "run.json").read_text())
        asked["config"] |= {"seed": number, "lr": number / 7}
        (run / "run.json").write_text(json.dumps(asked | {"setup_seconds": number / 3}))
    chapter = Chapter("03_scaling")
    ids = chapter.runs.run_id
    for number in range(200):
        chapter.export(pd.DataFrame({"seconds": [number / 7]}), f"topic-{number}", "What this is.", runs=ids[number:])
    chapter.close()
    page = chapters.bind(result_set)
    assert page.stat().st_size < 2000 * MANY
    script = f"""
      seen.count = document.querySelector("#runs [role=status]").textContent;
      seen.found = look("runs", "seed={MANY - 1}");
      location.hash = "#runs?table=topic-199";
      dispatchEvent(new Event("hashchange"));
      seen.behind = [document.querySelector("#runs [role=status]").textContent, shown("runs").length];
      seen.requests = performance.getEntriesByType("resource").filter((entry) => !entry.name.startsWith("data:")).length
    """
    assert tried(page, tmp_path / "profile", script) == {
        "count": f"{MANY} runs",
        "found": f"1 of {MANY} runs",
        "behind": [f"{MANY - 199} of {MANY} runs behind the table topic-199", MANY - 199],
        "requests": 0,
    }
