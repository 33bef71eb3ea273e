"""The site of `make docs`: built without a warning, complete, linked, searchable, and shown by a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from PIL import Image

from .publish.browser import opened

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted(ROOT.glob("results/reference/*/notebooks/**/*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site") / "html"  # its pictures are written beside it
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-c", "docs"]
    command = [sys.executable, "-m", "sphinx", *options, ".", str(built)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return built


def test_it_has_every_page_and_executed_chapter(site: Path) -> None:
    sources = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), ROOT / "jobs/README.md", *CHAPTERS]
    pages = {source: site / source.relative_to(ROOT).with_suffix(".html") for source in sources}
    assert len(CHAPTERS) > 10 and [source for source, page in pages.items() if not page.exists()] == []
    for chapter in CHAPTERS:
        cells = json.loads(chapter.read_text())["cells"]
        outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
        figures = {str(data["image/png"]) for data in outputs if "image/png" in data}
        text = pages[chapter].read_text()
        assert "<p>| " not in text, "a table is text"
        shown = set(re.findall(r'src="[./]*(_images/[^"]+\.png)"', text))
        assert len(shown) == len(figures) and all((site / image).exists() for image in shown), chapter


def test_the_interface_has_signatures_and_every_option(site: Path) -> None:
    from hpc_utils.config import RunConfig

    text = (site / "docs/api.html").read_text()
    for name in ("config.RunConfig", "train.Recorder.epoch", "records.load", "publish.chapter.Chapter.export"):
        assert f'id="hpc_utils.{name}"' in text
    assert all(f">{option}<" in text for option in RunConfig.model_fields)


def test_every_link_leads_somewhere_within_the_site_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    lost = []
    for path, text in pages.items():
        assert not re.search(r'<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//', text), path
        assert not re.search(r'<link\b[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//', text), path
        for link in set(re.findall(r'<(?:a|link|script|img)\b[^>]*?\b(?:href|src)="([^"]*)"', text)):
            target, _, anchor = unquote(unescape(link)).partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            to = (path.parent / target.partition("?")[0]).resolve() if target else path
            if not to.exists() or (anchor and to in anchors and anchor not in anchors[to]):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 40 and lost == []


def test_a_browser_shows_it_and_finds_a_term(site: Path, tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    dom, console = opened(site / "docs/index.html", tmp_path / "profile", more=[f"--screenshot={picture}"])
    assert console == [] and dom.find("h1") and dom.select(".sidebar-tree a.reference")
    with Image.open(picture) as image:
        assert image.size == (1280, 900) and len(image.convert("RGB").getcolors(2**24)) > 50
    dom, _ = opened(site / "search.html", tmp_path / "profile", at="?q=horovod")
    found = {Path(link["href"].partition("?")[0]).stem for link in dom.select("#search-results li > a")}
    assert "mpi" in found
