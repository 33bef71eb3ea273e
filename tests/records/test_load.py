from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpc_utils import records
from hpc_utils.records import RunFolder, schema
from hpc_utils.records.load import Refused, verify
from hpc_utils.records.study import StudyIndex, StudyRun

from .conftest import epoch_rows, run_json


def test_a_run_is_one_row_of_values_from_its_tables(record: Callable, results: Path) -> None:
    empty = records.load()
    folder = record("a")
    loaded, tables = records.load(), records.load_run(folder)
    assert len(empty.runs) == 0
    assert list(loaded.runs.columns) == list(empty.runs.columns) == [*schema.names(schema.RUNS), "blocks"]
    assert [len(tables[name]) for name in ("epochs", "steps", "ranks")] == [2, 20, 2]
    assert list(loaded.epochs.columns) == ["run_id", *schema.names(schema.EPOCHS)]
    assert (loaded.refused, loaded.unfinished) == ({}, {})
    run = loaded.runs.iloc[0]
    expected = {
        "run_id": "a", "state": "complete", "workload": "cnn", "world_size": 2, "epochs": 2, "samples": 640,
        "peak_rss_bytes": 2 * 10**8, "mode_rss_bytes": 2 * 10**7, "job_id": "17", "test_accuracy": 0.7, "host": "node1",
        "device_name": "CPU 0", "digest": "d" * 12, "torch": "2.13.0", "path": "runs/a",
    }  # fmt: skip
    assert {name: run[name] for name in expected} == expected
    assert math.isclose(run.seconds, 2.1) and math.isclose(run.throughput, 640 / 2.1)
    assert math.isclose(run.step_p50, 0.15)
    assert loaded.epochs[["run_id", "epoch", "samples"]].values.tolist() == [["a", 1, 320], ["a", 2, 320]]


def test_the_last_evaluated_epoch_counts_and_own_metrics_stand_behind_ours(record: Callable) -> None:
    first, last = (row | {"own_f1": 0.25} for row in epoch_rows())
    record("a", epochs=[first, last | {"test_accuracy": None}])
    record("b", epochs=[row | {"test_accuracy": None} for row in epoch_rows()])
    loaded = records.load()
    runs, epochs = loaded.runs.set_index("run_id"), loaded.epochs.set_index("run_id")
    assert runs.test_accuracy["a"] == 0.6 and pd.isna(runs.test_accuracy["b"])
    assert epochs.columns[-1] == "own_f1"
    assert epochs.own_f1["a"].tolist() == [0.25, 0.25] and epochs.own_f1["b"].isna().all()


def tampered(factor: float) -> list[dict]:
    return [row | {"throughput": row["throughput"] * factor} for row in epoch_rows()]


@pytest.mark.parametrize(
    ("false", "why"),
    [
        ({"epochs": tampered(2)}, "throughput .* is 2 times what 320 samples in 0.7 s give"),
        ({"run": {"emulated": True}}, "its device was emulated"),
    ],
)
def test_false_records_are_refused_by_name_and_others_load(record: Callable, false: dict, why: str) -> None:
    folder = record("false", **false)
    record("true")
    loaded = records.load()
    assert set(loaded.epochs.run_id) == {*loaded.runs.run_id} == {"true"}
    for read in (verify, records.load_run):
        with pytest.raises(Refused, match=why) as caught:
            read(folder)
        assert loaded.refused == {"false": str(caught.value)}


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("run.json", None, "run.json is missing or incomplete"),
        ("run.json", b"[]", "wrong kind"),
        ("provenance.json", b"\0" * 99, "provenance.json is missing or incomplete"),
        ("epochs.csv", 1, "epochs.csv cannot be read .*truncated"),
        ("ranks.csv", b"\xff", "ranks.csv cannot be read"),
        ("ranks.csv", b"x\n1\n2\n", "samples"),
    ],
)
def test_damaged_files_are_refused_by_name_and_others_load(record: Callable, name: str, damage, why: str) -> None:
    path = record("damaged") / name
    record("whole")
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage if isinstance(damage, bytes) else path.read_bytes()[:-damage])
    loaded = records.load()
    assert loaded.runs.run_id.tolist() == ["whole"]
    assert list(loaded.refused) == ["damaged"] and re.search(why, loaded.refused["damaged"])


def test_step_times_cut_short_and_a_file_that_cannot_be_read_are_refused(record: Callable) -> None:
    folder = record("a")
    steps, run = folder / "steps.csv.gz", folder / "run.json"
    steps.write_bytes(steps.read_bytes()[:-9])
    with pytest.raises(Refused, match=r"steps\.csv\.gz"):
        verify(folder)
    assert "steps.csv.gz" in records.load().refused["a"]
    run.unlink()
    run.mkdir()
    assert list(records.load().refused) == ["a"]


def test_an_accuracy_changed_by_hand_is_refused_unless_the_run_noted_no_digest(record: Callable) -> None:
    table = record("a", epochs=[row | {"test_accuracy": 0.725} for row in epoch_rows()]) / "epochs.csv"
    table.write_text(table.read_text().replace("0.725", "0.9"))
    assert "epochs.csv" in records.load().refused["a"]
    (table.parent / "status.json").write_text('{"state": "complete"}')
    assert records.load().runs.test_accuracy.tolist() == [0.9], "of another program, or before digests were noted"


def test_an_own_workload_in_another_folder_is_not_of_former_code_but_not_found(
    record: Callable, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_json("own")["config"]
    for name, workload in (("own", "there:mlp"), ("cnn", "cnn")):
        record(name, run={"workload": workload, "config": config | {"workload": workload, "source": "70722b28"}})
        StudyIndex(name=name, runs=[StudyRun(run_id=name, series="strong")]).write()
    loaded = records.load()
    assert records.by_former_code(loaded, results) == []
    (line,) = records.by_other_code(loaded, results)
    assert line.startswith("there:mlp is not found from here") and "--outdated" not in line
    assert not records.by_other_code(loaded.only({"cnn"}), results, "cnn")
    (tmp_path / "there.py").write_text("mlp = None")
    monkeypatch.chdir(tmp_path)
    assert [line.split()[5] for line in records.by_other_code(loaded, results)] == ["own"], "found, and changed since"


def test_runs_of_other_code_than_the_latest_are_named_with_the_command(record: Callable, results: Path) -> None:
    for number, digest in enumerate("abb"):
        record(f"r{number}", provenance={"digest": digest * 64, "collected_at": f"2026-01-0{number + 1}"})
    record("own", run={"config": run_json("own")["config"] | {"workload": "my:mlp"}}, provenance={"digest": "c" * 64})
    runs = [StudyRun(run_id=f"r{number}", series="strong") for number in range(3)]
    StudyIndex(name="s", command="hpc study run laptop -pepochs=1", runs=runs).write()
    StudyIndex(name="t", runs=runs[1:]).write()
    found = records.load()
    line, absent = records.by_other_code(found, results)
    assert absent.startswith("my:mlp is not found from here")
    assert line.startswith("1 of 3 runs of s ") and "`hpc study run laptop -pepochs=1 --outdated`" in line
    assert records.by_other_code(found, results, "t") == [absent]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    name=st.sampled_from(["run.json", "provenance.json", "epochs.csv", "ranks.csv", "status.json"]),
    where=st.floats(0, 1, exclude_max=True),
    length=st.integers(0, 60),
    junk=st.binary(max_size=4) | st.sampled_from([b"\n", b",", b'"', b"{", b"null", b"1e999", b"nan", b"[]"]),
)
@example(name="status.json", where=0, length=999, junk=b"[]")
@example(name="run.json", where=0, length=9999, junk=b'{"config": null}')
@example(name="epochs.csv", where=0.5, length=0, junk=b"\r")
def test_no_damage_to_one_run_hides_another(record, name: str, where: float, length: int, junk: bytes) -> None:
    """Whatever happens to some bytes of one file, loading does not raise and the other run is there."""
    whole, damaged = (RunFolder(records.study_index("x").parent.parent / "runs" / n).path for n in ("whole", "hurt"))
    for folder in (whole, damaged):
        if not folder.exists():
            record(folder.name)
    path = damaged / name
    content = path.read_bytes()
    start = int(where * len(content))
    try:
        path.write_bytes(content[:start] + junk + content[start + length :])
        loaded = records.load()
    finally:
        path.write_bytes(content)
    assert "whole" in set(loaded.runs.run_id)
    assert ("hurt" in set(loaded.runs.run_id)) + ("hurt" in loaded.refused) + ("hurt" in loaded.unfinished) == 1


def test_failed_and_running_runs_are_named_and_not_loaded(record: Callable, results: Path) -> None:
    RunFolder(record("failed")).set_status("failed", "NonFiniteLoss")
    RunFolder.claimed(results / "runs" / "running")
    (results / "runs" / "nothing").mkdir()
    (results / "runs" / ".hidden").mkdir()
    record("true")
    loaded = records.load()
    assert loaded.runs.run_id.tolist() == ["true"]
    assert loaded.unfinished == {"failed": "failed", "nothing": "absent", "running": "running"}


def test_a_study_loads_its_own_runs_only(record: Callable, results: Path) -> None:
    record("a")
    record("b")
    records.study_index("strong").parent.mkdir()
    records.study_index("strong").write_text(json.dumps({"runs": [{"run_id": "b"}, {"run_id": "to come"}]}))
    assert records.load(study="strong").runs.run_id.tolist() == ["b"]
    assert set(records.load(study="strong").epochs.run_id) == {"b"}
    assert records.load(study="strong").unfinished == {"to come": "absent"}
    chosen, alone = records.load().only({"b", "to come"}), records.load(study="strong")
    assert chosen.runs.equals(alone.runs) and chosen.unfinished == alone.unfinished
    with pytest.raises(records.UnknownStudy, match="`hpc study run weak`"):
        records.load(study="weak")
    with pytest.raises(records.UnknownStudy, match="did you mean strong"):
        records.load(study="stong")


def test_only_a_study_whose_file_is_here_is_measured_again_by_its_command(results: Path) -> None:
    there = [
        bool(records.StudyIndex(command=command, runs=[]).file)
        for command in ("hpc study run laptop", "hpc study run gone", "")
    ]
    assert there == [True, False, False]


@pytest.mark.parametrize("index", ["", '{"runs": [{"series": "a"}]}'])
def test_an_index_without_valid_runs_is_refused(index: str, results: Path) -> None:
    path = records.study_index("strong")
    path.parent.mkdir(parents=True)
    path.write_text(index)
    with pytest.raises(records.UnknownStudy, match="is damaged"):
        records.load(study="strong")


def test_collect_writes_what_load_gives(record: Callable, results: Path) -> None:
    record("a")
    record("false", epochs=tampered(2))
    collected = records.collect()
    assert list(collected.refused) == ["false"]
    for name, frame in (("runs", collected.runs.drop(columns="blocks")), ("epochs", collected.epochs)):
        read = pd.read_csv(results / f"csv/{name}.csv")
        assert list(read.columns) == list(frame.columns) and set(read.run_id) == {"a"}
        assert read.throughput.tolist() == frame.throughput.tolist()
    before = (results / "csv/epochs.csv").read_bytes()
    records.collect()
    assert (results / "csv/epochs.csv").read_bytes() == before
