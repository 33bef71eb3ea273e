"""Keeping studies as a committed set leaves no path of this machine."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import measure
from companions.reference_sets import reference
from hpc_utils import paths, records
from hpc_utils.publish import exports, staleness
from hpc_utils.records import packed
from tests.support import copy_runs, write_files


def test_an_unfinished_study_is_not_kept(results: Path) -> None:
    index(results, "x")
    with pytest.raises(reference.CannotKeep, match="'mine' is not complete"):
        reference.keep(["mine"], "here")
    assert not (paths.root() / "results/reference/here").exists()


def test_probes_and_benches_of_the_same_machine_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    machine = "rehearsal-cpu-0a"
    for name in (machine, f"{machine}-1gbit", "0a", "rehearsal-cpu-0b", "other-cpu-0a1"):
        probe = tmp_path / f"results/probes/allreduce/{name}.json"
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text(json.dumps({"hardware_id": name}))
    row = measure.Row(
        "a case", "a side", "throughput", "images/s", 1.0, 1.0, 1.0, 1, note=f"{tmp_path}/results/bench"
    )
    for cluster, name, quick in (
        (machine, "loaders", False),
        (machine, "overhead", True),
        ("elsewhere", "startup", False),
    ):
        monkeypatch.setenv("HPC_CLUSTER", cluster)
        measure.save(name, [row], measure.Options(quick=quick), 0.0)
    reference._keep_probes({machine}, tmp_path / "kept")
    kept = {path.relative_to(tmp_path / "kept").as_posix() for path in (tmp_path / "kept").rglob("*.*")}
    probes = {f"probes/allreduce/{name}.json" for name in (machine, f"{machine}-1gbit", "0a")}
    assert kept == probes | {"bench/loaders.csv"}
    assert pd.read_csv(tmp_path / "kept/bench/loaders.csv").note.tolist() == ["results/bench"]


def index(results: Path, run: str) -> None:
    path = results / "studies/mine.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"name": "mine", "runs": [{"run_id": run}]}))


def test_the_rounds_of_runs_that_took_turns_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = copy_runs(paths.reference() / "turns", tmp_path / "results", limit=1)
    index(tmp_path / "results", run.name)
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    before = records.load(tmp_path / "results").runs.blocks[0]
    kept = records.load(reference.keep(["mine"], "here")).runs.blocks[0]
    assert len(kept) > 20 and kept == before


def test_of_a_profile_what_is_small_and_holds_no_environment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = copy_runs(paths.reference() / "accuracy", tmp_path / "results", limit=1)
    for name in ("profile/rank0.nsys-rep", "profile/rank0.sqlite", "profile/rank0_nvtxsum.csv", "monitor/node1.csv"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("a\n1\n")
    (run / "profile/rank0.trace.json.gz").write_bytes(gzip.compress(f'["{run}"]'.encode()))
    (run / "profile/rank1.trace.json.gz").write_bytes(os.urandom(reference.SMALL + 1))
    index(tmp_path / "results", run.name)
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    write_files(
        tmp_path / "results/studies/mine",
        {"clusters/site.toml": f'about = "{tmp_path}"', "parts/net.py": "net = None"},
    )
    target = reference.keep(["mine"], "here") / "runs" / run.name
    planned_from = target.parents[1] / "studies/mine"
    assert (planned_from / "clusters/site.toml").read_text() == 'about = "."', (
        "committed sets have the cluster file of their runs"
    )
    assert (planned_from / "parts/net.py").read_text() == "net = None"
    assert not target.exists() and (tmp_path / "results/reference/here/runs.jsonl").is_file(), "it is packed"
    found = {name for name in packed.names(target) if "/" in name}
    assert found == {"profile/rank0_nvtxsum.csv", "monitor/node1.csv", "profile/rank0.trace.json.gz"}
    trace = gzip.decompress(packed.content(target / "profile/rank0.trace.json.gz"))
    assert json.loads(trace) == [f"results/runs/{run.name}"]


@pytest.mark.parametrize("name", ["../elsewhere", ""])
def test_a_set_s_name_is_a_folder_s_name(name: str) -> None:
    with pytest.raises(reference.CannotKeep, match="no folder's name"):
        reference.keep(["laptop"], name)


def test_a_kept_study_brings_its_chapters(renewed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = exports.read_exports(renewed)
    monkeypatch.setattr(paths, "root", lambda: tmp_path / "clone")
    kept = exports.read_exports(reference.keep(["laptop"], "here"))
    assert kept.pages == found.pages and staleness.faults(kept, records.load(kept.folder)) == []
