"""Runs fetched by a real rsync: whole and true ones only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths
from hpc_utils.launch.pull import pull
from hpc_utils.records import packed
from tests.support import copy_runs

REFERENCE = packed.folders(paths.reference() / "epyc-2core")

pytestmark = pytest.mark.skipif(not shutil.which("rsync"), reason="needs rsync")


@pytest.fixture
def there(tmp_path: Path, results: Path) -> Path:
    """A cluster's results: two complete runs, one that is unfinished, one whose records contradict each other."""
    folder = tmp_path / "the cluster's $(results)"
    copy_runs(paths.reference() / "epyc-2core", folder, limit=4)
    (folder / "runs" / REFERENCE[0].name / "checkpoints").mkdir()
    status = folder / "runs" / REFERENCE[2].name / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"state": "stopped"}))
    path = folder / "runs" / REFERENCE[3].name / "epochs.csv"
    epochs = pd.read_csv(path)
    epochs.assign(throughput=epochs.throughput * 2).to_csv(path, index=False)  # multiplied by the world size
    (folder / "studies").mkdir()
    (folder / "studies" / "strong-x.json").write_text("{}")
    return folder


def test_complete_runs_arrive_others_do_not(there: Path, results: Path) -> None:
    done = pull(str(there))
    assert done.fetched == [run.name for run in REFERENCE[:2]]
    assert list(done.refused) == [REFERENCE[3].name]
    assert (done.present, done.unfinished) == (0, 1)
    assert sorted(p.name for p in (results / "runs").iterdir()) == done.fetched
    arrived = results / "runs" / done.fetched[0]
    assert not (arrived / "checkpoints").exists()
    assert (results / "studies/strong-x.json").exists()
    assert not list(results.glob(".pull-*")), "nothing is left beside them"


def test_what_is_here_is_not_fetched_again_and_a_half_run_makes_way(there: Path, results: Path) -> None:
    half = results / "runs" / REFERENCE[0].name
    half.mkdir(parents=True)
    (half / "status.json").write_text('{"state": "failed"}')
    (there / "runs" / half.name / "profile").mkdir()
    (there / "runs" / half.name / "profile/rank0.trace.json.gz").write_bytes(b"x")
    assert half.name in pull(str(there), profiles=False).fetched
    assert json.loads((half / "status.json").read_text())["state"] == "complete" and not (half / "profile").exists()
    again = pull(str(there))
    assert (again.fetched, again.present) == ([], 2)
    shutil.rmtree(half)
    pull(str(there))
    assert (half / "profile/rank0.trace.json.gz").exists()
