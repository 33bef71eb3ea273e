"""Equal content, equal fingerprint: packed or moved, but not changed."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.records import fingerprint, packed

RUN = packed.folders(paths.reference() / "epyc-2core")[0]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    packed.unpack(RUN, tmp_path / "moved" / RUN.name)
    return tmp_path / "moved" / RUN.name


def test_a_moved_and_repacked_run_has_the_same_fingerprint(run: Path) -> None:
    steps = run / "steps.csv.gz"
    steps.write_bytes(gzip.compress(gzip.decompress(steps.read_bytes()), compresslevel=1))
    (run / "notebook.ipynb").write_text("what is drawn of it")
    assert fingerprint.of_run(run) == fingerprint.of_run(RUN)


@pytest.mark.parametrize("name", fingerprint.RECORDS)
def test_any_change_of_a_record_changes_the_fingerprint(run: Path, name: str) -> None:
    path = run / name
    path.write_bytes(path.read_bytes() + b" ")
    changed = fingerprint.of_run(run)
    path.unlink()
    assert len({changed, fingerprint.of_run(run), fingerprint.of_run(RUN)}) == 3


def test_rounds_count_only_in_runs_that_took_turns(run: Path) -> None:
    rounds = run / "rounds.csv"
    rounds.unlink(missing_ok=True)
    parts = "".join(f"{name}\0{fingerprint.of_file(run / name)}\0" for name in fingerprint.RECORDS)
    alone = fingerprint.of_run(run)
    assert alone == hashlib.sha256(parts.encode()).hexdigest()
    rounds.write_text("round\n1\n")
    in_turn = fingerprint.of_run(run)
    rounds.write_text("round\n2\n")
    assert len({alone, in_turn, fingerprint.of_run(run)}) == 3


def test_paths_of_this_machine_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path / "results"))
    own, kept = tmp_path / "own.json", tmp_path / "kept.json"
    own.write_text(f'{{"script": "{paths.root()}/notebooks/x.ipynb", "out": "{tmp_path}/results/runs/x"}}')
    kept.write_text('{"script": "./notebooks/x.ipynb", "out": "results/runs/x"}')
    assert fingerprint.of_file(own) == fingerprint.of_file(kept)


def test_paths_of_this_machine_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_RESULTS", "/data/al")
    text = f"/data/al/runs /data/alice/runs {paths.root()}/notebooks {Path.home()}/secret"
    assert fingerprint.portable(text) == "results/runs /data/alice/runs ./notebooks ~/secret"
    monkeypatch.setenv("HOME", "/")
    assert fingerprint.portable("/etc/x") == "/etc/x"
