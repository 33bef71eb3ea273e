from __future__ import annotations

import base64
import io
from itertools import pairwise
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

from hpc_utils import records
from hpc_utils.publish.exports import Exports
from hpc_utils.publish.report import Head, ReportError, write_report
from hpc_utils.publish.report.lookup import Evidence
from hpc_utils.records import StudyIndex

from .browser import digest, tried

FACTS = {"device": "Xeon <1 core>", "commit": "ae1fe41c02"}
INTRO = r"""# 2 Data-parallel training

See [the baseline](01_baseline.ipynb#what-is-seen), [its source](../jobs/run.sh) and [the paper](https://example.org/paper).
"""
METHOD = r"""## The experiment

Efficiency is $E = \frac{T(1)}{N \, T(N)}$, and the step takes

$$T_\text{step}(N) = \max_r \left( t_r^\text{compute} + t_r^\text{exposed} \right), \qquad N \ge 1$$

Broken: $\left( a < b$.

![logo](https://example.org/logo.png)
"""
HTML = '<div id="main"><b>open<script src="https://example.org/x.js"></script><img><table><thead><tr></tr></thead><tbody><tr><td colspan="x">1'
TRACEBACK = [
    "\x1b[31mRuntimeError\x1b[39m   Traceback (most recent call last)",
    "\x1b[31mRuntimeError\x1b[39m: loss is <NaN>",
]


@pytest.fixture(scope="module")
def figure() -> str:
    """A wide picture, base64 with line ends."""
    Image.new("RGB", (1074, 390)).save(buffer := io.BytesIO(), "PNG")
    return base64.encodebytes(buffer.getvalue()).decode()


def executed(*cells, name: str, failed: bool = False, parameters: dict | None = None):
    notebook = new_notebook(cells=list(cells))
    notebook.metadata.language_info = {"name": "python"}
    notebook.metadata.papermill = {
        "input_path": f"notebooks/{name}.ipynb",
        "start_time": "2026-11-21T05:44:28.413290+00:00",
        "duration": 95.7,
        "exception": failed or None,
        "parameters": parameters or {},
    }
    return notebook


def code(source: str, *outputs, tags: tuple[str, ...] = ()):
    return new_code_cell(source, outputs=list(outputs), execution_count=1, metadata={"tags": list(tags)})


def shown(value) -> dict:
    return new_output(
        "execute_result", {"text/html": value._repr_html_(), "text/plain": repr(value)}, execution_count=1
    )


def picture(figure: str, alt: str | None = None) -> dict:
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return new_output("display_data", {"image/png": figure, "text/plain": "<Figure>"}, metadata=metadata)


def baseline():
    return executed(
        new_markdown_cell("# 1 The baseline"),
        code("epochs = 3\nlr: float = 0.1", tags=("parameters",)),
        new_markdown_cell("## What is seen"),
        code("several", *(new_output("display_data", {"text/html": HTML}) for _ in range(2))),
        name="01_baseline",
    )


def parallel(figure: str):
    bar = "".join(f"\repoch 1:  {n}%|{'#' * (n // 10):10}| {n}/100" for n in range(0, 101, 5)) + "\n"
    table = pd.DataFrame(
        {"series": ["strong-fp32"], "world_size": [2]} | {f"phase_{n}_seconds": [0.25] for n in range(9)}
    )
    return executed(
        new_markdown_cell(INTRO),
        new_markdown_cell(METHOD),
        code(
            "result = train(config)",
            new_output("stream", name="stdout", text="warming up\n"),
            new_output("stream", name="stdout", text="\x1b[32mready\x1b[0m in 1.2 s\n"),
            new_output("stream", name="stderr", text=bar),
        ),
        new_markdown_cell("## What is seen\n\n### Efficiency"),
        code("table", shown(table)),
        code("draw()", picture(figure, "Efficiency falls")),
        code("draw()", picture(figure)),
        code(
            "Markdown(text)", new_output("display_data", {"text/markdown": "**1.9 times** $S(1)$.", "text/plain": ""})
        ),
        code("6 * 7", new_output("execute_result", {"text/plain": "42"}, execution_count=9)),
        name="02_ddp",
        parameters={"precision": "bf16", "layers": [1, 2]},
    )


def broken():
    return executed(
        new_markdown_cell('<span style="color:red">An Exception was encountered</span>', metadata={"tags": ["papermill-error-cell-tag"]}),
        new_markdown_cell("# This run FAILED\n\n```\nrank 1 raised RuntimeError\n```\n", metadata={"tags": ["run-failed"]}),
        new_markdown_cell("# 4 Profiling & &lt;waiting>\n\n## What is seen"),
        code("step(batch)", new_output("error", ename="RuntimeError", evalue="loss is <NaN>", traceback=TRACEBACK)),
        name="04_profiling",
        failed=True,
    )  # fmt: skip


HEAD = Head(StudyIndex(title="A & B <i>scaling</i>", about="On <one> laptop", runs=[]), FACTS, (), (), ())


def bind(folder: Path, *notebooks) -> Path:
    """Each notebook in a folder of its own, bound into `folder/out/index.html`."""
    chapters = []
    for number, notebook in enumerate(notebooks):
        name = Path(notebook.metadata.get("papermill", {}).get("input_path", "notebook.ipynb")).name
        chapters.append(folder / f"run{number}" / name)
        chapters[-1].parent.mkdir(exist_ok=True)
        nbformat.write(notebook, chapters[-1])
    return write_report(folder / "out" / "index.html", HEAD, evidence(folder, *chapters))


def evidence(folder: Path, *chapters: Path) -> Evidence:
    """Of a set that has chapters, but neither runs nor exports."""
    return Evidence(folder, records.load(folder), Exports(folder), [], chapters, [], {})


@pytest.fixture(scope="module")
def report(tmp_path_factory, figure) -> Path:
    return bind(tmp_path_factory.mktemp("report"), baseline(), parallel(figure), broken())


@pytest.fixture(scope="module")
def page(report) -> BeautifulSoup:
    return BeautifulSoup(report.read_text(), "html.parser")


def texts(elements) -> list[str]:
    return [element.get_text(" ", strip=True) for element in elements]


def test_nothing_is_loaded_from_elsewhere(page):
    loaded = [element.get("src") or element.get("href") for element in page.select("[src], link[href], [srcset]")]
    assert len(loaded) == 3  # two figures and the icon
    assert all(url.startswith("data:") for url in loaded)
    policy = page.find("meta", attrs={"http-equiv": "Content-Security-Policy"})["content"].split("; ")
    assert "default-src 'none'" in policy
    assert f"script-src {digest(page.script.string)}" in policy, "no script of a notebook or a record runs"
    assert "logo (not in this page: https://example.org/logo.png)" in page.get_text()
    assert page.find("a", href="https://example.org/paper")


def test_outputs_and_titles_cannot_break_the_page(page):
    assert len(page.select("#main")) == 1
    assert len(page.select("#\\30 1-baseline > .output")) == 2
    assert not page.select("script[src], .output script")
    assert page.title.get_text() == page.h1.get_text() == "A & B <i>scaling</i>"
    assert page.select_one(".subtitle").get_text() == "On <one> laptop"
    facts = page.select_one("dl.facts")
    assert dict(zip(texts(facts.find_all("dt")), texts(facts.find_all("dd")), strict=True)) == FACTS


def test_chapters_are_in_order_with_source_parameters_and_sections(page):
    titles = ["1 The baseline", "2 Data-parallel training", "4 Profiling & <waiting>"]
    assert texts(page.select("article h2")) == titles
    assert [article["id"] for article in page.find_all("article")] == ["01-baseline", "02-ddp", "04-profiling"]
    assert texts(page.select("article .source"))[1] == "02_ddp.ipynb, executed 2026-11-21 05:44 UTC, 96 s"
    assert texts(page.find(id="02-ddp").select(".parameters code")) == ["layers=[1, 2]", "precision=bf16"]
    levels = [int(heading.name[1]) for heading in page.find_all(["h1", "h2", "h3", "h4", "h5", "h6"])]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert texts(page.select("#contents ol ol")[1].find_all("li")) == ["The experiment", "What is seen"]


def test_every_anchor_is_one_place_and_links_between_chapters_lead_there(page):
    ids = [element["id"] for element in page.find_all(id=True)]
    assert len(ids) == len(set(ids))
    targets = [link["href"][1:] for link in page.select('a[href^="#"]')]
    targets += [element["aria-labelledby"] for element in page.select("[aria-labelledby]")]
    assert set(targets) <= set(ids)
    chapter = page.find(id="02-ddp")
    assert chapter.find("a", string="the baseline")["href"] == "#01-baseline--what-is-seen"
    assert "its source" in chapter.get_text() and not chapter.find("a", string="its source")


def test_a_failed_chapter_is_flagged(page):
    assert texts(page.select("nav .flag")) == ["failed"]
    head, banner, error = page.find(id="04-profiling").select(".alert")
    assert "This chapter failed" in head.get_text() and "rank 1 raised RuntimeError" in banner.get_text()
    assert page.find(id=head.a["href"][1:]) is error
    assert "RuntimeError loss is <NaN>" in error.p.get_text()
    assert error.select_one(".ansi-red-fg") and "\x1b" not in error.get_text()
    assert "An Exception was encountered" not in page.get_text()
    assert "1 of 3 chapters failed" in page.select_one("#top .alert").get_text(" ", strip=True)


def test_chapters_of_one_name_are_distinguished_and_an_expected_error_is_no_failure(tmp_path):
    error = new_output("error", ename="OSError", evalue="", traceback=[])
    notebooks = [new_notebook(cells=[code("open('x')", error, tags=tags)]) for tags in ((), ("raises-exception",))]
    page = BeautifulSoup(bind(tmp_path, *notebooks).read_text(), "html.parser")
    assert texts(page.select("#contents > ol > li")) == ["notebook (run0) failed", "notebook (run1)"]
    assert [article["id"] for article in page.find_all("article")] == ["notebook", "notebook-2"]


def test_streams_and_formulas(page):
    chapter = page.find(id="02-ddp")
    out, bar, result = chapter.select("pre.stream")
    assert out.get_text() == "warming up\nready in 1.2 s\n" and out.span["class"] == ["ansi-green-fg"]
    assert bar.get_text() == "epoch 1:  100%|##########| 100/100\n" and "stderr" in bar["class"]
    assert result.get_text() == "42"
    assert [formula["display"] for formula in chapter.find_all("math")] == ["inline", "block", "inline"]
    assert chapter.math.find("mfrac") and "$" not in page.main.get_text()
    assert chapter.find("code", string=r"\left( a < b"), "a formula that is not understood"


def test_what_is_no_notebook_is_refused_by_name(tmp_path):
    path = tmp_path / "03_scaling.ipynb"
    with pytest.raises(ReportError, match=r"03_scaling\.ipynb"):
        write_report(tmp_path / "index.html", HEAD, evidence(tmp_path, path))
    path.write_text("# not JSON")
    with pytest.raises(ReportError, match=r"03_scaling\.ipynb is not a notebook"):
        write_report(tmp_path / "index.html", HEAD, evidence(tmp_path, path))
    assert not (tmp_path / "index.html").exists()


# --- In a real browser ---

SCRIPT = """
  seen.formula = document.querySelector("math mfrac").getBoundingClientRect().height;
  document.getElementById("show-code").click();
  seen.open = document.querySelectorAll("details.code[open]").length;
  document.querySelector("button.figure").click();
  const zoom = document.getElementById("zoom");
  seen.zoom = [zoom.open, zoom.matches(":modal"), zoom.ariaLabel, zoom.querySelector("img").width > 400];
  zoom.querySelector("button").click();
  seen.closed = !zoom.open;
"""


@pytest.mark.parametrize("size", ["1280,900", "500,900"])
def test_in_a_browser(report, tmp_path, size):
    seen = tried(report, tmp_path / "profile", SCRIPT, size=size)
    assert seen["formula"] > 5
    assert seen["open"] == 9
    assert seen["zoom"] == [True, True, "Efficiency falls", True]
    assert seen["closed"]
