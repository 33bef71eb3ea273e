"""A small project in git, with a result set whose chapter exported tables, and its built text: all that a release is made of."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from pathlib import Path

import pypdf
import pytest

from hpc_utils import paths
from hpc_utils.publish import manifest
from hpc_utils.publish.release import pdfs
from hpc_utils.records import packed

SET = "results/reference/here"
PAPER = f'''[sets]
here = "{SET}"
[document.paper]
source = "paper.md"
template = "paper"
'''


@pytest.fixture
def project(tmp_path: Path, exported: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean clone with one commit, one set and one built PDF; everything that any release needs holds."""
    root = tmp_path / "clone"
    shutil.copytree(exported, root / SET)
    packed.pack(root / SET)
    for name in ("pyproject.toml", "CITATION.cff", "REUSE.toml", "LICENSE", ".gitignore", "README.md"):
        shutil.copyfile(paths.root() / name, root / name)
    for name in ("LICENSES", "notebooks"):
        shutil.copytree(paths.root() / name, root / name, ignore=shutil.ignore_patterns(".*"))
    (root / "paper").mkdir()
    (root / "paper/paper.md").write_text("# A paper\n\nEfficiency is {{laptop-efficiency[ranks=2]}}.\n")
    (root / "paper/paper.toml").write_text(PAPER)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    with (root / ".gitignore").open("a") as file:
        file.write("/paper/build/\n")
    git(root, "init", "-q")
    commit(root)
    build(root)
    # What git has is looked at; where this test's own files lie is nobody's business.
    monkeypatch.setattr("hpc_utils.publish.release.places.own", lambda: ("/made/up/by/tests",))
    return root


def git(root: Path, *arguments: str) -> str:
    told = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    environment = os.environ | {f"GIT_{who}_DATE": "2026-03-01T12:00:00+00:00" for who in ("AUTHOR", "COMMITTER")}
    command = ["git", "-C", str(root), *told, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout


def commit(root: Path) -> str:
    """Commit all there is; returns the commit."""
    git(root, "add", "--all")
    git(root, "commit", "-qm", "x")
    return git(root, "rev-parse", "HEAD").strip()


def pdf(**metadata: str) -> bytes:
    """One empty page that tells `metadata` about itself."""
    writer, buffer = pypdf.PdfWriter(), io.BytesIO()
    writer.add_blank_page(100, 100)
    writer.add_metadata({f"/{name}": value for name, value in metadata.items()})
    writer.write(buffer)
    return buffer.getvalue()


def build(root: Path, content: bytes | None = None) -> None:
    """What `make paper` leaves."""
    folder, content = root / pdfs.BUILD, content or pdf(Title="A paper")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper.pdf").write_bytes(content)
    manifest.note(folder / "paper.pdf", root, [root / "paper/paper.md"], [root / SET])
