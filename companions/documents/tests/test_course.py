"""`hpc release --course`: packs and tags what is handed in, and names what is missing."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from companions.documents.release import course
from hpc_utils.cli import main


def git(*arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *identity, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def hpc(*options: str) -> Result:
    return CliRunner().invoke(main, ["release", "--course", *options])


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A student's repository with everything, without a run on a GPU."""
    folder = tmp_path / "thesis"
    for name in [*(f"handin/{name}" for name in course.HANDED_IN), "docs/paper.pdf"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    for variable in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{variable}_NAME", "A")
        monkeypatch.setenv(f"{variable}_EMAIL", "a@example.org")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "Hand in")
    return folder


def test_the_repository_is_packed_and_tagged_once(repository: Path, tmp_path: Path) -> None:
    assert hpc("--check").exit_code == 0 and git("tag") == ""
    for _ in range(2):
        done = hpc()
        assert done.exit_code == 0, done.output
        assert git("rev-parse", "v1.0^{commit}") == git("rev-parse", "HEAD")
    names = zipfile.ZipFile(tmp_path / "results/release/thesis-1.0.zip").namelist()
    assert {"thesis-1.0/handin/results.csv", "thesis-1.0/docs/paper.pdf"} <= set(names)
    (repository / "more.txt").write_text("later")
    git("add", "-A")
    git("commit", "-qm", "More")
    assert hpc().exit_code == 2, "the tag is at another commit"


@pytest.mark.parametrize("missing", ["handin/run.sh", "docs/paper.pdf", "handin/reproduce.md"])
def test_what_is_missing_is_named_and_nothing_is_tagged(repository: Path, missing: str) -> None:
    git("rm", "-q", missing)
    git("commit", "-qm", "Less")
    done = hpc()
    assert done.exit_code == 2 and git("tag") == ""
    assert Path(missing).name in done.stderr or "PDF" in done.stderr or "export --course" in done.stderr


def test_neither_the_compendium_s_own_documents_nor_other_records_count(repository: Path) -> None:
    (repository / "docs/pdf").mkdir()
    git("mv", "docs/paper.pdf", "docs/pdf/paper.pdf")
    (repository / "handin/results.csv").write_text("run_id,epoch\ncnn-1,1\ncnn-2,1\n")
    packed = repository / "results/reference/mine/runs.jsonl"
    packed.parent.mkdir(parents=True)
    packed.write_text('{"run_id": "cnn-1"}\n')
    git("add", "-A")
    git("commit", "-qm", "More")
    lacking = hpc("--check").output
    assert "no PDF" in lacking and "1 run of handin/results.csv" in lacking


def test_uncommitted_files_are_refused(repository: Path) -> None:
    (repository / "handin/results.csv").write_text("edited")
    checked = hpc("--check")
    assert hpc().exit_code == 2 and "results.csv" in checked.output and checked.exit_code == 1


@pytest.mark.parametrize(
    ("place", "text", "planned", "named"),
    [
        ("results", "Text.", "", ""),
        ("/scratch/ada", "Text.", "", "/scratch/ada"),
        ("results", "::: {.guide}\nWho?\n:::", "", "paper/paper.md"),
        ("results", "Text.", 'planned = ["mine"]', "hpc paper paper"),
    ],
)
def test_an_unfinished_paper_is_named(repository: Path, place: str, text: str, planned: str, named: str) -> None:
    (repository / "paper").mkdir()
    (repository / "paper/paper.md").write_text(text)
    document = f'[document.paper]\nsource = "paper.md"\ntemplate = "paper"\n{planned}'
    (repository / "paper/paper.toml").write_text(f'[sets]\nmine = "{place}"\n{document}\n')
    git("add", "-A")
    git("commit", "-qm", "Paper")
    checked = hpc("--check")
    assert checked.exit_code == bool(named) and named in checked.output
