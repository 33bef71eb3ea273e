"""From the form to a submitted study in a real browser, in a clone that has measured nothing.

It takes the pictures of env/ondemand/README.md, docs/images/ondemand: `pytest --basetemp=FOLDER` keeps them in FOLDER/*/pictures.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest

from hpc_utils.rehearsal import Cluster
from tests.publish.browser import browser as chromium
from tests.support import wait_for
from tests.test_companions import copy_project

from .browser import SHIFT, Browser, started
from .conftest import dashboard, program, submitted
from .portal import form_page, portal

IDLE = "document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')"
NOTEBOOK = ".jp-NotebookPanel:not(.lm-mod-hidden)"
PANEL = f"document.querySelector('{NOTEBOOK} .jp-WindowedPanel-outer')"
# One step towards the first figure; true if it is already there and stays. JupyterLab lays cells out while they come into view.
SCROLL_TO_A_FIGURE = f"""(() => {{
  const top = {PANEL}.getBoundingClientRect().top + 120;
  const figure = [...{PANEL}.querySelectorAll('.jp-OutputArea-output img')].find((image) => image.height > 150);
  const distance = figure ? figure.getBoundingClientRect().top - top : 300;
  {PANEL}.scrollTop += distance;
  return !!figure && Math.abs(distance) < 5;
}})()"""


@pytest.fixture
def partition(slurm: Callable[..., str]) -> Iterator[None]:
    """A partition that allows the form's two hours; jobs that are left are cancelled."""
    slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=120")
    yield
    slurm("scancel", "--me")
    wait_for(lambda: not slurm("squeue", "--me", "--noheader"), every=0.5)
    slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=60")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's home, with a clone whose environment is installed."""
    with tempfile.TemporaryDirectory(prefix="home-") as home:
        clone = Path(home) / "compendium"
        copy_project(clone)
        (clone / ".venv").symlink_to(sys.prefix)
        (clone / "jobs/environment.sh").write_text(f"export HOME={home}\nsource .venv/bin/activate\n")
        monkeypatch.setenv("HOME", home)
        yield Path(home)


def choose(page: Browser, menu: str, item: str) -> None:
    page.click(".lm-MenuBar-itemLabel", menu, until="!!document.querySelector('.lm-Menu')")
    page.click(".lm-Menu-itemLabel", item, until="!document.querySelector('.lm-Menu')")


def run_all(page: Browser, chapter: Path) -> list[nbformat.NotebookNode]:
    """Open a chapter from the list of files, choose Run All Cells, and save it until its last cell is done; its code cells."""
    page.click(".jp-DirListing-item", chapter.name)
    page.enter()
    page.until(f"document.title.startsWith('{chapter.stem}') && {IDLE}")
    choose(page, "Run", "Run All Cells")

    def code_cells() -> list[nbformat.NotebookNode]:
        return [cell for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "code"]

    def ended() -> bool:
        page.until(IDLE)
        choose(page, "File", "Save Notebook")
        cells = code_cells()
        return cells[-1].execution_count or any(
            output.output_type == "error" for cell in cells for output in cell.outputs
        )

    wait_for(ended, seconds=300, every=2)
    return code_cells()


def run_cell(page: Browser, code: str) -> str:
    """Type into the cell with the cursor and press Shift+Enter; what it prints."""
    page.until("document.activeElement?.matches('.cm-content')")
    page.write(code)
    page.until(f"document.activeElement.innerText.trim() == '{code}'")
    page.enter(SHIFT)
    page.until(f"!{IDLE}")
    page.until(IDLE)
    return page.until(f"[...document.querySelectorAll('{NOTEBOOK} .jp-OutputArea-output')].at(-1)?.innerText")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_from_the_form_to_a_submitted_study(
    cluster: Cluster, slurm: Callable[..., str], home: Path, partition: None, launch: Callable, tmp_path: Path
) -> None:
    clone, pictures = home / "compendium", tmp_path / "pictures"
    app = clone / "env/ondemand"
    form = tmp_path / "form.html"
    form.write_text(form_page(json.loads(dashboard("form", app))))
    with started(chromium(), tmp_path / "profile") as page:
        page.open(form.as_uri())
        assert page.value("document.querySelector('#working_dir').value") == str(clone)
        page.value("document.querySelector('#working_dir').select()")
        page.write("~/compendium")
        page.photograph(pictures / "1-form.png", height=720)
        page.click("button", until="document.title.startsWith('{')")
        folder, arguments = launch(**json.loads(page.value("document.title")))
        with (
            submitted(slurm, folder, arguments) as (_, node, _),
            portal(program("apache2"), cluster.address(node), dashboard("view", app, folder)) as card,
        ):
            page.open(card)
            page.photograph(pictures / "2-card.png", height=210)
            page.click("button")
            page.turn()  # another tab
            page.until("document.querySelector('.jp-MarkdownCell h1')?.innerText.startsWith('Start here')")
            page.until(IDLE)
            page.click(".jp-toast-button", "No")  # no news of Jupyter
            page.until("!document.querySelector('.jp-toast-button')")
            page.photograph(pictures / "3-jupyterlab.png")

            for number, name in enumerate(("03_scaling", "04_profiling"), 4):
                cells = run_all(page, clone / f"notebooks/{name}.ipynb")
                assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
                outputs = [output for cell in cells for output in cell.outputs]
                assert not [output for output in outputs if output.output_type == "error"]
                assert len([output for output in outputs if "image/png" in output.get("data", {})]) > 5
                page.value(f"{PANEL}.scrollTop = 0")
                page.until(SCROLL_TO_A_FIGURE)
                page.photograph(pictures / f"{number}-{name}.png")

            page.click("[data-command='launcher:create']", until="!!document.querySelector('.jp-LauncherCard')")
            page.click(".jp-LauncherCard", "Python 3", until="document.title.startsWith('Untitled')")
            page.until(IDLE)
            assert "8 to submit" in run_cell(page, "!hpc submit laptop --cluster rehearsal --repeats 1")
            assert "PENDING" in run_cell(page, "!hpc status")
            page.photograph(pictures / "6-study.png")
            wait_for(lambda: "COMPLETED" in run_cell(page, "!hpc status --all"), seconds=200, every=5)
