"""Profiled runs from request to records, as far as no profiler of NVIDIA's is needed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpc_utils import paths, profilers
from hpc_utils.config import ConfigError
from hpc_utils.launch import local, rank_profiler
from hpc_utils.launch.request import Layout, prepare
from hpc_utils.launch.target import Target

from .conftest import TRAIN, Bench

NOTEBOOK = paths.notebooks() / "02_ddp.ipynb"
BRIEF = {"workload": "cnn", "device": "auto"}


def test_ncu_is_for_one_rank(results: Path) -> None:
    assert prepare(NOTEBOOK, BRIEF | {"profile": "ncu"})
    with pytest.raises(ConfigError, match=r"'ncu' on 2 ranks: .*forever; profile one rank"):
        prepare(NOTEBOOK, BRIEF | {"profile": "ncu"}, Layout(1, 2))


def test_where_a_profiler_is_missing_its_runs_are_not_applicable(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(profilers.sys, "executable", str(tmp_path / "python"))
    here, amd, somewhere = Target.here(), Target("lumi", gpus="amd"), Target("x", gpus="nvidia")
    assert "env/nsight.sh" in here.refusal(Layout(), {"profile": "nsys"})
    assert "these are AMD's" in amd.refusal(Layout(), {"profile": "nsys"})
    assert here.refusal(Layout(), {"profile": "torch"}) == amd.refusal(Layout(), {}) == ""
    assert amd.refusal(Layout(), {"profile": "cpu"}) == somewhere.refusal(Layout(), {"profile": "nsys"}) == ""


def test_a_rank_whose_profiler_does_not_start_gives_the_reason(bench: Bench, tmp_path: Path) -> None:
    """As on nodes where it is missing or of another system: the launcher there looks for nothing."""
    (tmp_path / "nsys").write_text(f"#!/bin/sh\necho no such luck; echo >> {tmp_path}/tries; exit 9\n")
    (tmp_path / "nsys").chmod(0o755)
    outcome = bench.hpc("run", bench.notebook(TRAIN), "-p", "profile=nsys", "-p", "parallel=none", PATH=tmp_path)
    assert outcome.code == 1
    assert "nsys did not start the rank: no such luck" in bench.status()["reason"]
    assert bench.left() == []
    assert (tmp_path / "tries").read_text() == "\n\n", "it was started once more"


def test_a_profilers_own_lines_are_for_the_log_only(capsys) -> None:
    with local.follow(SimpleNamespace(run_id="a run", warning="")) as watch:
        watch({}, "USDT:2026-11-25 10:22:00 7:7 Sync.cpp:52] profiler_start\nepoch 1/3\n")
        watch({}, "STAGE:2026-11-25 10:22:00 7:7 Sync.cpp:60] Completed Stage: Collection\n")
    assert capsys.readouterr().err.split() == ["epoch", "1/3"]


def test_what_cannot_be_exported_is_a_remark(tmp_path: Path, monkeypatch) -> None:
    run = tmp_path / "run"
    (run / "profile").mkdir(parents=True)
    (run / "logs").mkdir()
    (run / "profile/rank0.nsys-rep").write_text("not a report")
    (run / "logs/profiler1.log").write_text("out of luck")
    (run / "run.json").write_text(
        json.dumps({"config": {"profile": "nsys"}, "remarks": ["a"], "profiled": {"tool": "nsys"}})
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(profilers.sys, "executable", str(tmp_path / "python"))
    rank_profiler.export_reports(run, 2, [], print)
    about = json.loads((run / "run.json").read_text())
    first, left, lacking = about["remarks"]
    assert (first, left) == ("a", "nsys left no report of rank1: out of luck")
    assert "rank0.nsys-rep was not exported" in lacking and "nsys is not on PATH" in lacking
    assert about["profiled"] == {"tool": "nsys", "files": {"rank0.nsys-rep": 12}}
