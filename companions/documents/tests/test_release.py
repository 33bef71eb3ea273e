"""A release holds all that it describes, twice the same, and is refused when an item of the checklist does not hold."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rocrate.rocrate import ROCrate

from companions.documents.release import checklist, crate
from companions.documents.release.archive import release
from companions.documents.release.checklist import Item
from companions.documents.release.crate import ReleaseRefused
from hpc_utils import paths, provenance
from hpc_utils.cli import main
from hpc_utils.publish import exports
from hpc_utils.records import packed

SET = "results/reference/here"
TOP = "scaling-compendium-0.1.0"
PDFS = [f"paper/build/paper{end}" for end in (".pdf", "-numbers.pdf", "-numbers.csv")]
TEXT = """---
title: A paper
author:
- name: A. Byron
---

Efficiency is {{laptop-efficiency[ranks=2]}}.
"""
PAPER = f"""[sets]
here = "{SET}"
[document.paper]
source = "paper.md"
template = "paper"
"""


@pytest.fixture(scope="module")
def original(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone with one commit, one set and one text, in which all that any release needs holds."""
    root = tmp_path_factory.mktemp("release") / "clone"
    packed.pack(shutil.copytree(sets / "exported", root / SET))
    for name in ("pyproject.toml", "CITATION.cff", "LICENSE", ".gitignore", "README.md"):
        shutil.copyfile(paths.root() / name, root / name)
    shutil.copytree(paths.root() / "notebooks", root / "notebooks", ignore=shutil.ignore_patterns(".*"))
    (root / "paper").mkdir()
    (root / "paper/paper.md").write_text(TEXT)
    (root / "paper/paper.toml").write_text(PAPER)
    git(root, "init", "-q")
    commit(root)
    return root


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return shutil.copytree(original, tmp_path / "clone")


def git(root: Path, *arguments: str) -> str:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    environment = os.environ | {f"GIT_{who}_DATE": "2026-03-01T12:00:00+00:00" for who in ("AUTHOR", "COMMITTER")}
    command = ["git", "-C", str(root), *author, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout


def commit(root: Path) -> str:
    """Commit all there is; then what the tests leave."""
    git(root, "add", "--all")
    git(root, "commit", "-qm", "x")
    done = git(root, "rev-parse", "HEAD").strip()
    (root / checklist.PASSED).write_text(json.dumps({"commit": done}))
    return done


def faults(project: Path, item: str) -> list[str]:
    return list(checklist.CHECKS[item][0](project))


# --- The archive ---


def test_a_release_is_whole_and_described(project: Path, tmp_path: Path) -> None:
    (project / "results/runs").mkdir(parents=True)
    (project / "results/runs/x").write_text("ignored")
    path = release(project, tmp_path / "out")
    assert path == tmp_path / f"out/{TOP}.zip"
    shutil.unpack_archive(path, tmp_path / "unpacked")
    folder = tmp_path / "unpacked" / TOP
    there = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert there.keys() - set(git(project, "ls-files").splitlines()) == {
        "SHA256SUMS", "ro-crate-metadata.json", *PDFS, f"{SET}/report/index.html", f"{SET}/report/laptop/index.html",
    }  # fmt: skip
    assert str(tmp_path) not in there[f"{SET}/report/index.html"].decode()
    sums = dict(line.split("  ")[::-1] for line in there.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in there.items()}

    read = ROCrate(folder)
    assert all((folder / entity.id).exists() for entity in read.data_entities)
    actions = read.get_by_type("CreateAction")
    assert {action["name"] for action in actions} == {path.name for path in packed.folders(project / SET)}
    assert {action["result"].id for action in actions} == {f"{SET}/"}
    assert read.root_dataset["version"] == "0.1.0" and read.root_dataset["datePublished"] == "2026-03-01"
    assert {license["name"] for license in read.root_dataset["license"]} == {"BSD-3-Clause", "CC-BY-4.0"}
    assert any(line.startswith("torch") for line in read.root_dataset["mainEntity"]["softwareRequirements"])


def test_the_same_commit_gives_the_same_bytes(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = release(project, tmp_path / "a").read_bytes()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    again = shutil.move(project, tmp_path / "moved")
    assert release(again, tmp_path / "b").read_bytes() == first


def test_the_citation_is_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "CITATION.cff").write_text("""title: A study
version: 0.10
license: MIT
abstract: What it is.
keywords: [scaling]
date-released: 2026-03-01
authors:
  - {given-names: Ada, family-names: Byron, affiliation: A/B place, orcid: "https://orcid.org/0000-0001-2345-6789"}
  - name: A group
identifiers:
  - {type: url, value: "https://example.org"}
  - {type: doi, value: 10.5281/zenodo.1}
""")
    cited = crate.citation(tmp_path)
    assert [crate.name(author) for author in cited["authors"]] == ["Byron, Ada", "A group"]
    assert (cited["version"], cited["license"], cited["doi"]) == ("0.10", ["MIT"], "10.5281/zenodo.1")
    assert cited["date-released"] == "2026-03-01"


# --- The checklist ---


def test_a_small_project_may_be_released_but_is_no_version_1(project: Path) -> None:
    found = checklist.items(project)
    assert [item for item in found if item.always and item.faults] == []
    assert checklist.refused(found, "0.1.0") == []
    assert checklist.refused(found, "1.0rc1")
    with pytest.raises(ReleaseRefused):
        checklist.refused([Item("sizes", [], True)], "one")


def edit(name: str, text: str) -> Callable[[Path], None]:
    def change(project: Path) -> None:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return change


@pytest.mark.parametrize(
    ("item", "change", "committed"),
    [
        ("committed", edit("README.md", "changed"), False),
        ("tests pass", lambda project: (project / checklist.PASSED).unlink(), False),
        ("exports are current", edit(f"{SET}/tables/laptop-efficiency.csv", "ranks\n1\n"), True),
        ("texts have no fault", edit("paper/paper.md", TEXT + "It is 80 % of that.\n"), True),
        ("texts have no fault", edit("paper/paper.toml", PAPER + '[document.slides]\nsource = "slides.md"\n'), True),
    ],
)
def test_an_item_that_does_not_hold_refuses_any_release(
    project: Path, item: str, change: Callable[[Path], None], committed: bool
) -> None:
    change(project)
    if committed:
        commit(project)
    (found,) = [one for one in checklist.items(project) if one.name == item]
    assert found.faults and found.always


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseRefused, match="not a git repository"):
        checklist.items(tmp_path)


def test_what_uncommitted_code_exported_is_not_released(project: Path) -> None:
    (path,) = (project / SET / "exports").glob("*.json")
    page = json.loads(path.read_text()) | {"dirty": True}
    path.write_text(exports.text(page | {"fingerprint": exports.seal(page)}))
    (fault,) = faults(project, "exports are current")
    assert "uncommitted code" in fault


def test_values_of_other_code_are_stale(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(project, "exports are current") == []
    monkeypatch.setattr(provenance, "analysis_digest", lambda notebook: "edited since")
    assert len(faults(project, "exports are current")) == 1


@pytest.mark.parametrize("on_cpu", [[], ["the second"]])
def test_a_study_is_measured_on_gpus_if_all_its_runs_were(project: Path, monkeypatch, on_cpu: list[str]) -> None:
    monkeypatch.setattr(checklist, "GPU_STUDIES", ("laptop",))
    path = project / SET / packed.RUNS
    first, second, *others = path.read_text().splitlines(keepends=True)
    others = [line.replace('"device":"cpu"', '"device":"cuda"') for line in others]
    path.write_text(
        "".join([first, second if on_cpu else second.replace('"device":"cpu"', '"device":"cuda"'), *others])
    )
    assert bool(faults(project, "measured on GPUs")) == bool(on_cpu)


@pytest.mark.parametrize(
    ("verdict", "now", "held"), [("agree", "b", True), ("agree", "a", False), ("differ", "b", False)]
)
def test_a_run_is_reproduced_if_it_agrees_on_other_hardware(
    project: Path, verdict: str, now: str, held: bool
) -> None:
    sides = {side: {"provenance": {"hardware_id": machine}} for side, machine in (("then", "a"), ("now", now))}
    edit(f"{SET}/verify/run.json", json.dumps({"verdict": verdict} | sides))(project)
    assert (faults(project, "reproduced elsewhere") == []) is held


@pytest.mark.parametrize(("ranks", "held"), [(2, True), (8, False)])
def test_claims_are_judged_when_none_lacks_its_measurement(project: Path, ranks: int, held: bool) -> None:
    condition = f'value = "here:laptop-efficiency[ranks={ranks}]", at_least = 0.72'
    claim = f'[efficiency]\nsentence = "They are efficient."\nplanned = true\ntests = [{{ {condition} }}]\n'
    edit("paper/claims.toml", claim)(project)
    assert (faults(project, "claims are judged") == []) is held


def test_the_command_prints_the_checklist_and_packs(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "root", lambda: project)
    done = CliRunner().invoke(main, ["release", "--check"])
    assert done.exit_code == 0, done.output
    assert "0.1.0 can be released\n1.0.0 is refused" in done.output
    done = CliRunner().invoke(main, ["release", "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / f"out/{TOP}.zip").exists()
    (project / "README.md").write_text("changed")
    assert CliRunner().invoke(main, ["release", "--check"]).exit_code == 1
    done = CliRunner().invoke(main, ["release", "--output", str(tmp_path / "other")])
    assert done.exit_code == 2 and "committed: not as committed: README.md" in done.stderr
    assert not (tmp_path / "other").exists()


# --- The compendium itself ---


def test_the_page_names_every_item() -> None:
    page = (paths.root() / "RELEASING.md").read_text()
    items = [name for name in re.findall(r"^\| ([^|]+?) +\|", page, re.M) if name != "item"]
    assert items == list(checklist.CHECKS)
    assert all(f"`{study}`" in page for study in checklist.GPU_STUDIES)
    assert {*checklist.GPU_STUDIES} <= paths.study_files().keys()


def unpacked(name: str, content: bytes) -> Iterator[bytes]:
    """The content of a file, or of each file in an archive."""
    if name.endswith(".gz"):
        yield gzip.decompress(content)
    elif name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield from unpacked(member, archive.read(member))
    else:
        yield content


def test_the_committed_files_are_small_and_hold_no_machine_s_path() -> None:
    try:
        files = checklist.tracked(paths.root())
    except ReleaseRefused:
        pytest.skip("not a git clone: nothing is committed")
    own = [str(path).encode() for path in {paths.root(), Path.home()} if len(path.parts) > 2]
    personal = re.compile(rb"(?<![\w.~$}\]/-])/(?:home|Users|root|lustre|scratch)/[\w.-]+")
    for name in files:
        content = (paths.root() / name).read_bytes()
        limit = {".ipynb": 2.5, ".zip": 5, ".gz": 2}.get(Path(name).suffix, 1) if name.startswith("results/") else 1
        assert len(content) <= limit * 2**20, f"{name} is too large for git"
        for part in unpacked(name, content):
            found = [path for path in own if path in part]
            found += personal.findall(part) if name.startswith("results/reference/") else []
            assert not found, name


def test_the_citation_fits_the_package() -> None:
    cited, own = crate.citation(paths.root()), crate.project(paths.root())
    assert cited["version"] == own["version"] and own["license"] == cited["license"][0]
