"""A packed set holds the files of its folders, byte for byte."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.records import RunFolder, fingerprint, packed, schema
from hpc_utils.records.folder import read_json, state
from hpc_utils.records.load import Refused, verify

from .conftest import epoch_rows


@pytest.fixture
def two(record: Callable[..., Path], results: Path) -> dict[str, bytes]:
    """A set of two runs with different columns; one has profiles, a damaged one too, and files that other programs wrote."""
    record("a")
    run = record("b", epochs=[row | {"own_score": 0.5} for row in epoch_rows()])
    (run / "profile").mkdir()
    (run / "profile/rank0.trace.json.gz").write_bytes(gzip.compress(b"{}"))
    (run / "profile/rank1.trace.json.gz").write_bytes(gzip.compress(b"{}" * 99)[:-9])
    (run / "request.json").write_text('{"by": "hand"}')
    (run / "ranks.csv").write_bytes((run / "ranks.csv").read_bytes().replace(b"\n", b"\r\n"))
    RunFolder(run).set_status("complete")
    for name in ("a", "b"):
        shutil.rmtree(results / "runs" / name / "claims")
    found = (path for path in (results / "runs").rglob("*") if path.is_file())
    return {path.relative_to(results).as_posix(): plain(path.read_bytes()) for path in found}


def plain(raw: bytes) -> bytes:
    try:
        return gzip.decompress(raw)
    except (EOFError, gzip.BadGzipFile):
        return raw


def test_load_gives_the_same_frames_and_every_file_is_kept(two: dict[str, bytes], results: Path) -> None:
    before, prints = records.load(), {run.name: fingerprint.of_run(run) for run in packed.folders(results)}
    tables = {run: records.load_run(results / "runs" / run) for run in "ab"}
    packed.pack(results)
    assert not (results / "runs").exists()
    after = records.load()
    for name in ("runs", "epochs"):
        pd.testing.assert_frame_equal(getattr(before, name), getattr(after, name), check_exact=True)
    for run in "ab":
        folder, own = results / "runs" / run, records.load_run(results / "runs" / run)
        assert fingerprint.of_run(folder) == prints[run] and state(folder) == "complete"
        pd.testing.assert_frame_equal(own["steps"], tables[run]["steps"], check_exact=True)
    assert {name: plain(packed.content(results / name)) for name in two} == two
    assert fingerprint.profile_files(results, "ab") == [f"runs/b/profile/rank{rank}.trace.json.gz" for rank in (0, 1)]


def test_the_rounds_of_a_run_that_took_turns_are_kept(record: Callable[..., Path], results: Path) -> None:
    for name in ("alone", "in_turn"):
        run = record(name)
    row = {"session": "session-1", "place": 2, "epoch": 1, "steps": 1, "samples": 64, "ended": 1.5}
    rows = [row | {"round": number, "seconds": seconds} for number, seconds in enumerate((0.1, 0.30000000000000004))]
    RunFolder(run).write_table("rounds.csv", schema.names(schema.ROUNDS), rows)
    RunFolder(run).set_status("complete")
    before = (run / "rounds.csv").read_bytes()
    prints = [fingerprint.of_run(folder) for folder in packed.folders(results)]
    blocks = [{}, {("session-1", 1): pytest.approx(0.3 / 64 * 640 / 2.1)}]
    assert records.load().runs.blocks.tolist() == blocks
    packed.pack(results)
    assert packed.content(run / "rounds.csv") == before
    assert ["rounds.csv" in packed.names(folder) for folder in packed.folders(results)] == [False, True]
    assert [fingerprint.of_run(folder) for folder in packed.folders(results)] == prints
    assert records.load().runs.blocks.tolist() == blocks
    table = results / "csv/rounds.csv"
    table.write_bytes(table.read_bytes()[:-1])
    assert list(records.load().refused) == ["in_turn"]


def test_a_packed_run_can_be_copied_and_damaged_steps_are_refused(two: dict[str, bytes], results: Path) -> None:
    run = results / "runs/b"
    assert packed.unpacked(run) == run
    packed.pack(results)
    copy = packed.unpacked(run)
    assert (
        copy != run and packed.unpacked(run) == copy and read_json(copy / "run.json") == read_json(run / "run.json")
    )
    assert gzip.decompress((copy / "profile/rank0.trace.json.gz").read_bytes()) == b"{}"
    held = {packed.holder(run / name) for name in ("", "epochs.csv", "profile/rank0.trace.json.gz")}
    assert held == {results / name for name in ("runs.jsonl", "csv/epochs.csv", "files.zip")}
    assert packed.holder(run / "nothing") is None
    with pytest.raises(FileNotFoundError):
        packed.content(run / "nothing")
    steps = results / "csv/steps.csv.gz"
    steps.write_bytes(steps.read_bytes()[:-9])
    with pytest.raises(Refused, match=r"steps\.csv\.gz"):
        verify(results / "runs/a")


def test_later_runs_are_packed_too(record: Callable[..., Path], two: dict[str, bytes], results: Path) -> None:
    packed.pack(results)
    record("c")
    assert records.load().runs.run_id.tolist() == ["a", "b", "c"], "folders beside a packed set are read"
    packed.pack(results)
    before = (results / "csv/epochs.csv").read_bytes()
    assert records.collect().runs.run_id.tolist() == ["a", "b", "c"] and not (results / "runs").exists()
    assert (results / "csv/epochs.csv").read_bytes() == before
    assert pd.read_csv(results / "csv/runs.csv").run_id.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("csv/epochs.csv", lambda raw: raw.replace(b",320,", b",640,", 1)),
        ("csv/ranks.csv", lambda raw: raw.replace(b"samples", b"sample", 1)),
        ("csv/epochs.csv", lambda raw: b""),
    ],
    ids=["count", "column", "empty"],
)
def test_a_damaged_table_refuses_its_runs_by_name(
    two: dict[str, bytes], results: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    packed.pack(results)
    prints = {run.name: fingerprint.of_run(run) for run in packed.folders(results)}
    (results / name).write_bytes(change((results / name).read_bytes()))
    refused = records.load().refused
    assert refused and all(fingerprint.of_run(results / "runs" / run) != prints[run] for run in refused)
    (results / "runs.jsonl").write_text("{}\n[]\n")
    with pytest.raises(OSError, match="is damaged"):
        packed.folders(results)


def test_committed_sets_are_packed_in_a_few_files() -> None:
    for folder in paths.reference().iterdir():
        files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "figures"]
        tables = [path for path in files if path.parent.name == "tables"]
        assert len(tables) <= 30 and len(files) - len(tables) <= 25 and not (folder / "runs").exists(), folder
