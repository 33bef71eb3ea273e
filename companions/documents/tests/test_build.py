"""PDFs say what the result sets export, everywhere, and the same sources give the same bytes."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pypdf
import pytest

from companions.documents.faults import DocumentError
from hpc_utils import provenance
from tests.support import pdf_text

from .conftest import PAPER, ROOT, Paper


def alternatives(path: Path) -> set[str]:
    """The alternative texts of a PDF's images."""
    reader = pypdf.PdfReader(path)
    objects = (reader.get_object(number) for number in range(1, reader.trailer["/Size"]))
    return {one["/Alt"] for one in objects if isinstance(one, dict) and "/Alt" in one}


@pytest.fixture(scope="module")
def built(_made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`paper/build` of the usual project."""
    root = Path(shutil.copytree(_made, tmp_path_factory.mktemp("built") / "project"))
    Paper(root).build()
    return root / "paper/build"


def test_text_has_values_in_every_form_and_place(built: Path) -> None:
    said = pdf_text(built / "paper.pdf")
    for part in (
        "72.3 % [64.1, 80.7] of the ideal", "Two ranks reach 72.3 %, between 64.1 % and 80.7 %, in 3 repeats",
        "A link gives 9.40 GB/s. What limits is communication", "9.40 GB/s (a single run)", "How efficient 4 runs are",
        "efficiency 72.3 % [64.1, 80.7]", "{{this.is.code}}", "[1], [2, p. 3]", "Figure 1, Table 1, Section 1", "Table 2 shows",
    ):  # fmt: skip
        assert part in said
    assert "How efficient 4 runs are." in alternatives(built / "paper.pdf")
    sources = re.findall(r"Source: chapter 03_scaling, 4 runs, commit [0-9a-f]{7}\.", said)
    assert len(sources) == 3, "of the figure, the table and the typed table"


def test_the_colophon_lists_the_resources(paper: Paper) -> None:
    """In the list of numbers and the PDF's properties; in a paper it takes no page, in a report it does."""
    paper.say("Elsewhere: {{rehearsal:efficiency[world_size=2]}}.")
    paper.build("paper")
    said = pdf_text(paper.folder / "build/paper-numbers.pdf")
    about = pypdf.PdfReader(paper.folder / "build/paper.pdf").metadata.subject.replace("\u00a0", " ")
    assert "Colophon" in said and "Colophon" not in pdf_text(paper.folder / "build/paper.pdf")
    for part in (
        "Results: laptop", "Results: rehearsal", "PyTorch 2.13.0", "AMD EPYC (4 runs)", "Slurm jobs 41, 45, 57, 75",
        "device-hours", "core-hours of processors", "energy not known", "hpc paper paper",
    ):  # fmt: skip
        assert part in said and part in about
    for page in (paper.root / "sets").glob("*/exports/*.json"):
        assert json.loads(page.read_text())["fingerprint"][:12] in said


def test_each_number_leads_to_its_row_and_the_executed_chapter(built: Path) -> None:
    def links(name: str) -> set[str]:
        pages = pypdf.PdfReader(built / name).pages
        notes = [note.get_object() for page in pages for note in page.get("/Annots", [])]
        return {note["/A"]["/URI"] for note in notes if "/A" in note}

    rows = pypdf.PdfReader(built / "paper-numbers.pdf").named_destinations
    led = {link.partition("nameddest=")[2] for link in links("paper.pdf") if link.startswith("paper-numbers.pdf#")}
    assert led == {"number:laptop:efficiency[world_size=2]", "number:laptop:study.complete", "number:laptop:link.bandwidth", "number:laptop:limits.what"}  # fmt: skip
    assert led <= rows.keys()
    said = pdf_text(built / "paper-numbers.pdf")
    assert "laptop:efficiency[world_size=2] 72.3 % [64.1, 80.7] Strong-scaling efficiency of two ranks." in said
    assert "10 Gbit/s a setting of the experiments; paper/paper.md:" in said
    files = [link for link in links("paper-numbers.pdf") if "://" not in link]
    assert any(link.endswith(".ipynb") for link in files) and all((built / link).exists() for link in files)


def test_a_document_alone_has_its_numbers_with_all_runs_beside_it(paper: Paper) -> None:
    names = {path.name for path in paper.build("slides")}
    assert names == {"slides.pdf", "slides-numbers.pdf", "slides-numbers.csv"}
    ids = sorted(path.name for path in (paper.root / "sets/laptop/runs").iterdir())
    with (paper.folder / "build/slides-numbers.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["value"], row["low"], row["high"], row["results"]) == ("0.723", "0.641", "0.807", "sets/laptop")
    assert row["name"] == "laptop:efficiency[world_size=2]" and row["runs"].split() == ids
    said = pdf_text(paper.folder / "build/slides-numbers.pdf")
    assert "runs 1 to 4;" in said and all(f"{number}. {run}" in said for number, run in enumerate(ids, 1))
    paper.put("# {{unknown.cell}}\n", "slides.md")
    assert paper.faults("slides")
    with pytest.raises(DocumentError):
        paper.build("slides")
    assert not names & {path.name for path in (paper.folder / "build").iterdir()}, "none of a former build is left"


def test_same_sources_same_bytes(paper: Paper, tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in paper.build()}
    shutil.copytree(paper.root, tmp_path / "elsewhere")
    again = {path.name: path.read_bytes() for path in Paper(tmp_path / "elsewhere").build()}
    assert first == again


def test_slides_are_wide_and_one_for_each_heading(built: Path) -> None:
    (page,) = pypdf.PdfReader(built / "slides.pdf").pages  # with title and authors above
    assert page.mediabox.width / page.mediabox.height == pytest.approx(16 / 9, rel=0.01)
    assert "What limits" in page.extract_text() and "Source: chapter 03_scaling" in pdf_text(built / "slides.pdf")
    assert page["/Resources"].get("/XObject"), "a figure that was not found would leave its frame empty"


def test_whatever_stands_in_a_text_is_printed(paper: Paper) -> None:
    shutil.copy(paper.root / "sets/laptop/figures/efficiency.png", paper.folder / "my picture_1.png")
    front = PAPER.replace("title: A small study", 'title: "Reaching {{laptop:efficiency[world_size=2]}}"')
    paper.put(f"""{front.replace("name: Ada Example", "name: The study's authors")}
# At {{{{laptop:efficiency[world_size=2]|low}}}}

[See {{{{link.bandwidth}}}}](https://example.org) and Horizon 2020's Annex.

![Mine.](<my picture_1.png>){{#fig:mine source="drawn by us"}}

| a |
|---|
| - minus |

Nothing []{{.cell n=99}} here.
""")
    paper.build("paper")
    assert (
        pypdf.PdfReader(paper.folder / "build/paper.pdf").metadata.title.replace("\u00a0", " ") == "Reaching 72.3 %"
    )
    said = pdf_text(paper.folder / "build/paper.pdf")
    for part in (
        "2 At 64.1 %", "See 9.40 GB/s", "The study\u2019s authors", "2020\u2019s Annex", "Source: drawn by us.", "- minus",
        "Nothing here.",
    ):  # fmt: skip
        assert part in said
    assert "my-picture-1.png}" in (paper.folder / "build/tex/ieee/paper.tex").read_text()


def test_claims_print_their_verdicts(paper: Paper) -> None:
    paper.put(
        '[efficient]\nsentence = "Two ranks reach at least {at_least}"\n'
        'tests = [{ value = "laptop:efficiency[world_size=2]", at_least = 0.5 }]\n\n'
        '[perfect]\nsentence = "Two ranks reach at least {at_least} of the ideal"\n'
        'tests = [{ value = "laptop:efficiency[world_size=2]", at_least = 0.95 }]\n',
        "claims.toml",
    )
    paper.put(f"{PAPER}\nWe say: {{{{claim:efficient}}}}.\n\n{{{{claims}}}}\n")
    logged: list[str] = []
    paper.build("paper", log=logged.append)
    said = pdf_text(paper.folder / "build/paper.pdf")
    support = (
        "Two ranks reach at least 50 % (the data support it: 72.3 % [64.1, 80.7], at least 50 % claimed, 3 repeats)"
    )
    assert f"We say: {support}" in said and said.count(support) == 2
    assert "the data refute it" in said
    assert [line for line in logged if line.startswith("  does not hold: perfect: ")]


def test_what_other_analysis_computed_is_reported_and_built(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "analysis_digest", lambda notebook: "edited since")
    logged: list[str] = []
    assert paper.build("paper", log=logged.append)
    assert [line for line in logged if "was computed by other code than is here now" in line]


def test_the_command_lists_faults_and_exits_with_two(paper: Paper) -> None:
    """In a checkout that is not this one: `hpc paper` asks the working tree of the package."""
    code = (
        "import pathlib, sys; from hpc_utils import paths; from hpc_utils.cli import main; "
        f"paths.root = lambda: pathlib.Path({str(paper.root)!r}); main(sys.argv[1:])"
    )

    def hpc(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, "paper", *arguments], capture_output=True, text=True, timeout=120,
            cwd=ROOT, env={**os.environ, "COLUMNS": "200"},
        )  # fmt: skip

    listed = hpc("--values", "eff*").stdout
    assert "laptop:efficiency" in listed and "rehearsal:efficiency" in listed and "world_size (count)" in listed
    done = hpc("--check")
    assert (done.returncode, "no faults" in done.stdout) == (0, True), done.stderr
    assert not (paper.folder / "build").exists()
    line = paper.say("72 %")
    failed = hpc("paper")
    assert failed.returncode == 2
    assert f"paper/paper.md:{line}: '72 %' is typed by hand" in failed.stderr


@pytest.mark.parametrize("folder", ["sets/laptop", "sets/none"])
def test_what_a_planned_set_lacks_is_not_measured(paper: Paper, folder: str) -> None:
    """Without a cell, a figure, a table, or the whole set; what it has is printed."""
    toml = (paper.folder / "paper.toml").read_text().replace("\n[document", f'mine = "{folder}"\n\n[document', 1)
    entry = '[document.mine]\nsource = "mine.md"\ntemplate = "report"\nsets = ["mine"]\nplanned = ["mine"]\n'
    paper.put(f"{toml}\n{entry}", "paper.toml")
    paper.put(
        "---\ntitle: Mine\n---\n\nTwo ranks reach {{mine:efficiency[world_size=2]|interval}}, four "
        "{{mine:efficiency[world_size=4]|interval}} (Figure @fig:a, Table @tbl:b).\n\n![Later.](figure:mine:later){#fig:a}\n\n"
        "![Others.](table:mine:others){#tbl:b}\n",
        "mine.md",
    )
    logged: list[str] = []
    paper.build("mine", log=logged.append)
    said = pdf_text(paper.folder / "build/mine.pdf")
    two, missing = ("72.3 % [64.1, 80.7]", 3) if folder == "sets/laptop" else ("[not measured]", 4)
    assert f"Two ranks reach {two}, four [not measured] (Figure 1, Table 1)" in said
    assert said.count("not measured") == missing and "Figure 1. Later." in said and "Table 1. Others." in said
    assert f"  not measured: {missing} citations" in logged
    named = [line for line in logged if "paper/mine.md:5: efficiency[world_size=4]: no row" in line]
    assert len(named) == (folder == "sets/laptop"), "of a table that there is"
    paper.put(
        "---\ntitle: Mine\n---\n\n{{mine:efficiency world_size=4}} and {{efficiency[world_size=4]}}\n", "mine.md"
    )
    assert len(paper.faults("mine")) == 2, "what is no citation, or names no planned set"


def test_a_stale_chapter_of_a_planned_set_is_a_fault(paper: Paper) -> None:
    toml = (paper.folder / "paper.toml").read_text().replace('tex = ["ieee", "acm"]', 'planned = ["laptop"]')
    paper.put(toml, "paper.toml")
    (paper.root / "sets/laptop/notebooks/03_scaling.ipynb").write_text("{}")
    assert [fault.partition(": ")[0] for fault in paper.faults()] == ["paper/paper.toml:2"]


def test_a_guide_is_as_high_as_it_should_be(paper: Paper) -> None:
    paper.put("---\ntitle: Mine\n---\n" + 3 * "\n::: {.guide height=90%}\nWhy?\n:::\n")
    paper.build("paper")
    assert len(pypdf.PdfReader(paper.folder / "build/paper.pdf").pages) == 2, "three columns"
    paper.put("---\ntitle: Mine\n---\n\n::: {.guide height=3cm}\nWhy?\n:::\n")
    assert "share of the page" in paper.faults()[0]
