"""From the form to a submitted study, in a real browser: the pictures of env/ondemand/README.md are made here.

`pytest --basetemp=FOLDER` keeps them, in FOLDER/*/pictures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat
import pytest

from hpc_utils.rehearsal import Cluster
from tests.publish.browser import browser as chromium
from tests.support import wait_for
from tests.test_companions import copy_project

from . import browser, portal
from .browser import SHIFT, Browser
from .conftest import dashboard, program, submitted

IDLE = "document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')"
ENVIRONMENT = 'export HOME="$PWD/.."\nsource .venv/bin/activate\n'


def run_all(page: Browser, chapter: Path) -> list[nbformat.NotebookNode]:
    """Open a chapter from the list of files, choose Run All Cells, and save it; its code cells."""
    page.click(".jp-DirListing-item", chapter.name)
    page.enter()
    page.until(f"document.title.startsWith('{chapter.name[:9]}')")
    page.until(IDLE)
    page.click(".lm-MenuBar-itemLabel", "Run", until="!!document.querySelector('.lm-Menu')")
    page.click(".lm-Menu-itemLabel", "Run All Cells", until="!document.querySelector('.lm-Menu')")
    page.until(f"!{IDLE}")
    page.until(IDLE, patience=300)
    before = chapter.stat().st_mtime_ns
    page.click(".lm-MenuBar-itemLabel", "File", until="!!document.querySelector('.lm-Menu')")
    page.click(".lm-Menu-itemLabel", "Save Notebook", until="!document.querySelector('.lm-Menu')")
    wait_for(lambda: chapter.stat().st_mtime_ns > before)
    return [cell for cell in nbformat.read(chapter, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_from_the_form_to_a_submitted_study(
    cluster: Cluster, slurm, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone, pictures = tmp_path / "compendium", tmp_path / "pictures"
    copy_project(clone)
    (clone / ".venv").symlink_to(sys.prefix)
    (clone / "jobs/environment.sh").write_text(ENVIRONMENT)
    monkeypatch.setenv("HOME", str(tmp_path))
    app = clone / "env/ondemand"
    slurm("scontrol", "update", "PartitionName=gpu", "MaxTime=120")  # the form's default
    with (
        portal.started(program("apache2"), cluster.address("node1")) as front,
        browser.started(chromium(), tmp_path / "profile") as page,
    ):
        front.show(form=json.loads(dashboard("form", app)))
        page.open(front.url)
        assert page.value("document.querySelector('#working_dir').value") == str(clone)
        page.value("document.querySelector('#working_dir').value = ''")
        page.click("#working_dir", until="document.activeElement?.id == 'working_dir'")
        page.write("~/compendium")
        page.photograph(pictures / "form.png")
        page.click("button", until="document.title.startsWith('{')")
        folder, arguments = launch(**json.loads(page.value("document.title")))
        with submitted(slurm, folder, arguments) as (_, node, _):
            print(node, arguments)
            front.show(card=dashboard("view", app, folder))
            page.open(front.url)
            page.photograph(pictures / "card.png")
            page.click("button")
            page.turn()
            page.until("document.querySelector('.jp-MarkdownCell h1')?.innerText.startsWith('Start here')")
            page.until(IDLE)
            page.photograph(pictures / "jupyterlab.png")
            import time
            for name in ("03_scaling", "04_profiling"):
                cells = run_all(page, clone / f"notebooks/{name}.ipynb")
                page.photograph(pictures / f"{name}.png")
                for cell in cells:
                    print(cell.execution_count, cell.source[:50].replace(chr(10), ";"), [(o.output_type, str(o.get("evalue", ""))[:400]) for o in cell.outputs])
            page.click("[data-command='filebrowser:create-main-launcher'], [data-command='launcher:create']", until="[...document.querySelectorAll('.jp-LauncherCard')].some((card) => card.getBoundingClientRect().width)")
            page.photograph(pictures / "launcher.png")
            page.click(".jp-LauncherCard", "Python 3 (ipykernel)", until="document.title.startsWith('Untitled')")
            page.until(IDLE)
            page.photograph(pictures / "untitled.png")
            for line in ("!hpc submit laptop --cluster rehearsal --repeats 1", "!hpc status --all"):
                page.write(line)
                page.enter(SHIFT)
                page.until(f"!{IDLE}")
                page.until(IDLE)
            page.photograph(pictures / "submit.png")
            time.sleep(60)
            page.write("!hpc status --all; squeue; env | grep -E 'SLURM|HPC|PATH'")
            page.enter(SHIFT)
            time.sleep(10)
            page.photograph(pictures / "status.png")
            print(page.value("document.body.innerText"))
