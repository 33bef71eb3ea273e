"""Committed result sets: every one in the repository loads, and keeping one leaves no path of this machine."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import measure
from hpc_utils import paths, records
from hpc_utils.publish import exports, reference
from hpc_utils.records import packed
from tests.support import copy_runs

from .conftest import faults

SETS = sorted(path for path in (paths.root() / "results/reference").glob("*") if path.is_dir())


@pytest.mark.parametrize("folder", SETS, ids=lambda path: path.name)
def test_every_committed_set_can_be_true(folder: Path) -> None:
    found = records.load(folder)
    assert len(found.runs)
    assert not found.refused
    assert not found.unfinished
    studies = [json.loads(index.read_text()) for index in (folder / "studies").glob("*.json")]
    assert all({run["run_id"] for run in study["runs"]} <= set(found.runs.run_id) for study in studies)
    chapters = reference.together([study["name"] for study in studies], folder)
    labels = {"03_scaling": "scaling", "04_profiling": "profiling", "05_optimization": "speed"}
    assert all(list((folder / "figures").glob(f"{labels[chapter]}-*.pdf")) for chapter in chapters)
    if len(studies) == 1:
        own = [chapter for chapter in studies[0]["chapters"] if chapter["notebook"] not in chapters]
        if not all(chapter["run"] for chapter in own):
            assert list((folder / "figures").glob(f"{studies[0]['name']}-*.pdf"))
        chapters += [f"{studies[0]['name']}/{chapter['notebook']}" for chapter in own]
    assert chapters
    for chapter in chapters:
        executed = json.loads((folder / f"notebooks/{chapter}.ipynb").read_text())
        assert any(cell.get("outputs") for cell in executed["cells"]), "chapters are kept with their pictures"
    assert (folder / "SYSTEM.md").exists()
    assert faults(folder) == []
    drawn = {path.stem for path in (folder / "figures").glob("*.pdf")}
    assert drawn == set(exports.read(folder).figures), "every figure is exported, with its data and its runs"


def test_an_unfinished_study_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path))
    index = records.study_index("mine")
    index.parent.mkdir(parents=True)
    index.write_text(
        json.dumps({"name": "mine", "title": "", "about": "", "chapters": [], "runs": [{"run_id": "x"}]})
    )
    with pytest.raises(reference.CannotKeep, match="'mine' is not complete"):
        reference.keep(["mine"], "here")
    assert not (paths.root() / "results/reference/here").exists()


def test_probes_of_the_machine_and_of_its_limited_links_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    for name in ("rehearsal-cpu-0a", "rehearsal-cpu-0a-1gbit", "0a", "rehearsal-cpu-0b", "other-cpu-0a1"):
        probe = tmp_path / f"results/probes/allreduce/{name}.json"
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text(json.dumps({"hardware_id": name}))
    reference._keep_probes({"rehearsal-cpu-0a"}, tmp_path / "kept")
    kept = {path.stem for path in (tmp_path / "kept/probes/allreduce").iterdir()}
    assert kept == {"rehearsal-cpu-0a", "rehearsal-cpu-0a-1gbit", "0a"}


def test_tables_of_benchmarks_are_kept_with_the_runs_of_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HPC_CLUSTER", "here")
    row = measure.Row(
        "a case", "a side", "throughput", "images/s", 1.0, 1.0, 1.0, 1, note=f"{tmp_path}/results/bench"
    )
    measure.save("loaders", [row], measure.Options(), 0.0)
    measure.save("overhead", [row], measure.Options(quick=True), 0.0)
    monkeypatch.setenv("HPC_CLUSTER", "elsewhere")
    measure.save("startup", [row], measure.Options(), 0.0)
    reference._keep_bench({"here"}, tmp_path / "kept")
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "kept").rglob("*.csv")] == [
        "kept/bench/loaders.csv"
    ]
    assert pd.read_csv(tmp_path / "kept/bench/loaders.csv").note.tolist() == ["results/bench"]


def test_of_a_profile_what_is_small_and_holds_no_environment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = copy_runs(SETS[0], tmp_path / "results", limit=1)
    for name, text in {
        "profile/rank0.nsys-rep": "SECRET=1",
        "profile/rank0.sqlite": "SECRET=1",
        "profile/rank0_nvtxsum.csv": "Range\nstep\n",
        "monitor/node1.csv": "time\n1\n",
        "profile/rank1.trace.json.gz": "",
    }.items():
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text(text)
    (run / "profile/rank0.trace.json.gz").write_bytes(gzip.compress(f'["{run}"]'.encode()))
    (run / "profile/rank1.trace.json.gz").write_bytes(os.urandom(reference.SMALL + 1))
    index = tmp_path / "results/studies/mine.json"
    index.parent.mkdir()
    index.write_text(
        json.dumps({"name": "mine", "title": "", "about": "", "chapters": [], "runs": [{"run_id": run.name}]})
    )
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    target = reference.keep(["mine"], "here") / "runs" / run.name
    assert not target.exists() and (tmp_path / "results/reference/here/runs.jsonl").is_file(), "it is packed"
    found = {name for name in packed.names(target) if "/" in name}
    assert found == {"profile/rank0_nvtxsum.csv", "monitor/node1.csv", "profile/rank0.trace.json.gz"}
    trace = gzip.decompress(packed.content(target / "profile/rank0.trace.json.gz"))
    assert json.loads(trace) == [f"results/runs/{run.name}"]


@pytest.mark.parametrize("name", ["../elsewhere", ""])
def test_a_set_s_name_is_a_folder_s_name(name: str) -> None:
    with pytest.raises(reference.CannotKeep, match="no folder's name"):
        reference.keep(["laptop"], name)


def test_paths_of_this_machine_are_taken_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    text = f"{tmp_path}/results/runs/x {paths.root()}/notebooks {Path.home()}/secret"
    assert reference.portable(text) == "results/runs/x ./notebooks ~/secret"


def test_only_whole_folders_are_taken_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HPC_RESULTS", "/data/al")
    monkeypatch.setenv("HOME", "/")
    assert reference.portable("/data/al/runs /data/alice/runs /etc/x") == "results/runs /data/alice/runs /etc/x"
