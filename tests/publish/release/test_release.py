"""A release holds all that it says, twice the same, and is refused whenever something in it is not right."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from rocrate.rocrate import ROCrate

from hpc_utils import provenance
from hpc_utils.publish.release import ReleaseRefused, checksums, pdfs, release
from hpc_utils.records import packed

from .conftest import SET, build, commit, git, pdf

TOP = "scaling-compendium-0.1.0"


def test_a_release_is_whole_and_says_what_it_holds(project: Path, tmp_path: Path) -> None:
    path = release(project, tmp_path / "out")
    folder = tmp_path / "out" / TOP
    assert path == tmp_path / f"out/{TOP}.zip"
    assert not checksums.faults(folder)
    there = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    committed = set(git(project, "ls-files").splitlines())
    assert there.keys() - committed == {
        "SHA256SUMS", "ro-crate-metadata.json", ".zenodo.json", "paper/build/paper.pdf", "paper/build/manifest.json",
        f"{SET}/report/index.html",
    }  # fmt: skip
    assert there["paper/build/paper.pdf"].read_bytes() == (project / "paper/build/paper.pdf").read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert {name.removeprefix(f"{TOP}/"): archive.read(name) for name in archive.namelist()} == {
            name: file.read_bytes() for name, file in there.items()
        }
        assert archive.getinfo(f"{TOP}/run.sh").external_attr >> 16 == 0o100755
    assert there["run.sh"].stat().st_mode & 0o111
    assert str(tmp_path) not in there[f"{SET}/report/index.html"].read_text()


def test_the_crate_is_read_back_with_every_run_notebook_and_text(project: Path, tmp_path: Path) -> None:
    release(project, tmp_path / "out")
    folder = tmp_path / "out" / TOP
    crate = ROCrate(folder)
    for entity in crate.data_entities:
        assert (folder / entity.id).exists(), entity.id
    runs = {run.name for run in packed.folders(project / SET)}
    actions = crate.get_by_type("CreateAction")
    assert {action["result"]["name"] for action in actions} == runs
    assert all(
        action["instrument"].id in ("notebooks/01_baseline.ipynb", "notebooks/02_ddp.ipynb") for action in actions
    )
    assert {action.id for action in actions} == {one.id for one in crate.root_dataset["mentions"]}
    text = crate.dereference("paper/build/paper.pdf")
    assert (text["encodingFormat"], text["contentSize"]) == (
        "application/pdf",
        str((folder / text.id).stat().st_size),
    )
    assert crate.dereference(f"{SET}/figures/laptop-efficiency.pdf")["description"] == "Efficiency over ranks."
    assert crate.dereference("notebooks/03_scaling.ipynb")["description"] not in ("", "Notebook")
    root = crate.root_dataset
    assert root["version"] == "0.1.0" and root["datePublished"] == "2026-03-01"
    assert {one["name"] for one in root["license"]} == {"BSD-3-Clause", "CC-BY-4.0"}
    assert any(line.startswith("torch") for line in root["mainEntity"]["softwareRequirements"])


def test_the_same_commit_gives_the_same_bytes(project: Path, tmp_path: Path) -> None:
    first = release(project, tmp_path / "a").read_bytes()
    again = tmp_path / "moved"
    shutil.move(project, again)
    assert release(again, tmp_path / "b").read_bytes() == first


def test_a_release_of_that_name_is_replaced_whole(project: Path, tmp_path: Path) -> None:
    release(project, tmp_path)
    (tmp_path / TOP / "left.txt").write_text("from before")
    release(project, tmp_path)
    assert not checksums.faults(tmp_path / TOP)
    assert sorted(path.name for path in tmp_path.iterdir() if TOP in path.name) == [TOP, f"{TOP}.zip"]


def refusal(project: Path, tmp_path: Path) -> str:
    with pytest.raises(ReleaseRefused) as caught:
        release(project, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    return str(caught.value)


@pytest.mark.parametrize("change", ["edited", "new"])
def test_what_is_not_committed_is_refused(project: Path, tmp_path: Path, change: str) -> None:
    name = "README.md" if change == "edited" else "new.txt"
    (project / name).write_text("something else")
    assert f"not as committed: {name}" in refusal(project, tmp_path)


def test_what_git_ignores_does_not_matter(project: Path, tmp_path: Path) -> None:
    (project / "results/runs").mkdir()
    (project / "results/runs/x").write_text("ignored")
    assert release(project, tmp_path / "out").exists()
    assert not (tmp_path / "out" / TOP / "results/runs").exists()


def test_no_built_text_no_release(project: Path, tmp_path: Path) -> None:
    (project / pdfs.MANIFEST).unlink()
    assert "the texts are not built" in refusal(project, tmp_path)


def test_every_text_has_to_be_built(project: Path, tmp_path: Path) -> None:
    with (project / "paper/paper.toml").open("a") as file:
        file.write('[document.slides]\nsource = "slides.md"\ntemplate = "slides"\n')
    commit(project)
    assert "slides of paper/paper.toml is not built: `make paper`" in refusal(project, tmp_path)


def test_a_text_that_nobody_built_here_is_refused(project: Path, tmp_path: Path) -> None:
    (project / "paper/build/paper.pdf").write_bytes(pdf(Title="Another"))
    assert "paper/build/paper.pdf is not the file that the build of paper wrote" in refusal(project, tmp_path)


def test_a_text_of_an_older_source_is_refused(project: Path, tmp_path: Path) -> None:
    (project / "paper/paper.md").write_text("# Another paper\n")
    before = commit(project)
    told = refusal(project, tmp_path)
    assert (
        f"paper was built at commit {git(project, 'rev-parse', 'HEAD~1')[: provenance.SHORT]}, and says so: `make paper`"
        in told
    )
    assert f"anew at {before[: provenance.SHORT]}" in told
    assert "paper was built from another paper/paper.md than this commit's: `make paper`" in refusal(
        project, tmp_path
    )


def test_a_text_of_another_state_of_its_set_is_refused(project: Path, tmp_path: Path) -> None:
    manifest = json.loads((project / pdfs.MANIFEST).read_text())
    manifest["documents"]["paper"]["sets"][SET] = "0" * 64
    (project / pdfs.MANIFEST).write_text(json.dumps(manifest))
    assert f"paper was built on another state of {SET}" in refusal(project, tmp_path)


def test_a_changed_set_is_refused(project: Path, tmp_path: Path) -> None:
    table = project / SET / "figures/laptop-efficiency.csv"
    table.write_text(table.read_text().replace("0.7231", "0.9"))
    commit(project)
    build(project)
    assert "figures/laptop-efficiency.csv" in refusal(project, tmp_path)


def test_a_token_in_what_is_built_is_refused(project: Path, tmp_path: Path) -> None:
    build(project, pdf(Title="A paper", Producer="ghp_" + "a1B2" * 10))
    told = refusal(project, tmp_path)
    assert "paper/build/paper.pdf" in told and "a GitHub token" in told and "a1B2" not in told


def test_version_1_is_refused_until_its_checklist_holds(project: Path, tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CITATION.cff"):
        text = (project / name).read_text()
        (project / name).write_text(
            text.replace('version = "0.1.0"', 'version = "1.0.0"').replace("version: 0.1.0", "version: 1.0.0")
        )
    commit(project)
    build(project)
    told = refusal(project, tmp_path)
    assert "measured on GPUs (fails), which 1.0.0 needs: no committed result set has cifar10-gpu, strong" in told
    assert "tests pass (unknown), which 1.0.0 needs" in told


def test_what_is_no_clone_is_refused(tmp_path: Path) -> None:
    assert "no git clone" in refusal(tmp_path, tmp_path)


def test_an_altered_release_is_noticed(project: Path, tmp_path: Path) -> None:
    release(project, tmp_path)
    folder = tmp_path / TOP
    (folder / "README.md").write_text("altered")
    (folder / "LICENSE").unlink()
    (folder / "more.txt").write_text("added")
    assert checksums.faults(folder) == [
        "LICENSE is listed and not there", "more.txt is there and not listed", "README.md has changed since it was packed",
    ]  # fmt: skip
