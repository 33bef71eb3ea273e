"""The ResNet-50 workshop's quantities and tables, against numbers computed by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from companions.workshop import analysis as workshop
from companions.workshop import tables
from hpc_utils import paths, records
from hpc_utils.records.study import StudyIndex
from tests.analyze.runs import run

MIB = 2**20
# (time, MiB): set-up until 100, an epoch until 120, evaluation, an epoch from 130 to 150, the end.
READINGS = [(90, 100), (100, 500), (110, 900), (120, 900), (125, 2000), (130, 800), (150, 900), (155, 100)]
EPOCHS = {"ended": [120.0, 150.0], "seconds": [20.0, 20.0], "eval_seconds": [10.0, 5.0], "checkpoint_seconds": 0.0,
          "steps": 4, "samples": 100, "epoch": [1, 2], "lr": 1e-3, "train_loss": [3.0, 2.5], "train_accuracy": [0.1, 0.25],
          "test_loss": [4.0, 3.5], "test_accuracy": [0.05, 0.125]}  # fmt: skip


@pytest.fixture
def measured(tmp_path: Path) -> pd.DataFrame:
    """Two runs on a rank, and one on two nodes of two ranks; the monitor's file of the first only."""
    own = {"setup_seconds": 60.0, "warmup_seconds": 4.0, "samples": 200, "throughput": 5.0}
    rows = [run(1, 40.0, parallel="none", repeat=n, run_id=f"one{n}", **own) for n in (1, 2)]
    rows.append(run(4, 40.0, run_id="four", nodes=2, batch=400, **own | {"throughput": 15.0}))
    epochs = pd.concat([pd.DataFrame(EPOCHS).assign(run_id=row["run_id"]) for row in rows], ignore_index=True)
    for row in rows:
        folder = tmp_path / "runs" / row["run_id"]
        folder.mkdir(parents=True)
        ranks = {"rank": [0, 1], "local_rank": [0, 1], "host": "n1", "device": "cpu", "device_name": "EPYC"}
        pd.DataFrame(ranks | {"train_loss": [2.0, 3.0], "train_accuracy": 0.5}).to_csv(
            folder / "ranks.csv", index=False
        )
    (tmp_path / "runs/one1/monitor").mkdir()
    log = pd.DataFrame(READINGS, columns=["time", "rss_bytes"]).assign(device="rank0", utilization_percent=50.0)
    log = pd.concat([log.assign(rss_bytes=log.rss_bytes * MIB), log.assign(device="cpu", rss_bytes=0)])
    log = log.assign(
        host="n1", memory_used_bytes=1, memory_total_bytes=24000 * MIB, power_watts=None, virtual_bytes=MIB
    )
    log.to_csv(tmp_path / "runs/one1/monitor/n1.csv", index=False)
    index = StudyIndex(name="w", runs=[{"run_id": row["run_id"], "series": "protocol"} for row in rows])
    return workshop.measure(tmp_path, pd.DataFrame(rows), epochs, [index])


def test_without_a_monitor_what_it_reads_is_unknown() -> None:
    results = paths.reference() / "epyc-2core"
    found = records.load(results)
    runs = workshop.measure(results, found.runs, found.epochs, records.studies(results))
    assert runs[["peak_always", "mean_training", "power_watts"]].isna().all(axis=None)
    assert runs.updates.gt(0).all() and workshop.configurations(runs, "protocol").empty


def test_a_run_in_both_terms(measured: pd.DataFrame) -> None:
    one = measured.iloc[0]
    assert (one.series, one.updates, one.train_loss, one.own_loss, one.own_accuracy) == ("protocol", 8, 2.5, 2.0, 0.5)
    assert one.with_evaluation == pytest.approx(200 / 55) and one.total_seconds == 60 + 4 + 40 + 15
    assert (one.peak_training, one.mode_training) == (900 * MIB, 900 * MIB)
    assert one.mean_training == pytest.approx((500 + 900 + 900 + 800 + 900) / 5 * MIB)
    assert (one.peak_always, one.mean_always, one.mode_always) == (2000 * MIB, 775 * MIB, 900 * MIB)
    assert measured.peak_always.isna().tolist() == [False, True, True]


def test_a_device_has_a_curve_from_its_first_sample_on(measured: pd.DataFrame, tmp_path: Path) -> None:
    curve = workshop.over_time(tmp_path, measured, "protocol")
    assert set(curve.run_id) == {"one1"} and set(curve["rank"]) == {0}
    assert curve.seconds.tolist() == [time - READINGS[0][0] for time, _ in READINGS]
    assert curve.memory_bytes.tolist() == [size * MIB for _, size in READINGS]
    assert curve.utilisation.eq(0.5).all()
    assert workshop.over_time(tmp_path, measured, "adjusted").empty
    committed = paths.reference() / "workshop"
    found = records.load(committed)
    runs = workshop.measure(committed, found.runs, found.epochs, records.studies(committed))
    curves = workshop.over_time(committed, runs, "protocol")
    devices = curves.groupby("config", sort=False)["rank"].nunique()
    assert devices.to_dict() == {"1 device": 1, "2 devices": 2, "4 devices": 4, "8 devices": 8}
    assert curves.groupby(["run_id", "rank"]).size().min() >= 5, "samples of each curve"


def test_the_tables_scale_as_each_definition_says(measured: pd.DataFrame) -> None:
    found = workshop.configurations(measured, "protocol")
    assert found.config.tolist() == ["1 device", "2 nodes x 2 devices"]
    first = workshop.one_node(found, workshop.WORKSHOP)
    assert first.config.tolist() == ["1 device", "2 devices", "4 devices", "8 devices"]
    assert first.repeats.notna().tolist() == [True, False, False, False]
    assert (first.loss[0], first.memory_scaling[0]) == (2.0, 1.0)
    second = workshop.several_nodes(found)
    row = second.set_index("config").loc["2 nodes x 2 devices"]
    speed = found.throughput[1] / found.throughput[0]
    assert row.throughput_scaling == pytest.approx(speed) and row.loss == 2.5
    assert pd.isna(row.node_scaling), "one node of two devices was not measured"
    shown = tables.filled(second, epoch=2, nodes=True)
    assert list(shown)[:4] == ["Config", "Train Loss (Epoch 2)", "Train Acc (Epoch 2) (%)", "Throughput (img/s)"]
    assert "not measured" in shown.Config[0] and (shown.iloc[0, 1:] == "–").all()
    baseline = tables.filled(workshop.several_nodes(found, workshop.WORKSHOP), epoch=2, nodes=True).iloc[0]
    assert (
        baseline.Config == "1 node (baseline)"
        and baseline[["Throughput Scaling vs 1N", "Memory Avg Scaling vs 1N"]].eq("1").all()
    )
    mine = workshop.efficiency(found, "protocol")
    assert mine.efficiency.tolist() == pytest.approx([1.0, speed / 4])


def test_what_to_expect_is_compared_with_what_was_measured(measured: pd.DataFrame, monkeypatch) -> None:
    layout = (2, 2), "throughput_scaling"
    monkeypatch.setattr(workshop, "EXPECTED", {
        "on a GPU": (*layout, (2.9, 3.1), (1.0, 2.0)), "on a CPU": (*layout, (1.0, 2.0), (2.9, 3.1)),
        "not run": ((1, 8), "throughput_scaling", (6.0, 8.0), (6.0, 8.0)),
    })  # fmt: skip
    for on_gpus in (True, False):
        found = workshop.expected(workshop.configurations(measured, "protocol"), on_gpus).set_index("check")
        assert found.verdict.to_list() == [*("as expected", "differs")[:: 1 if on_gpus else -1], "not measured"]
    assert found.factor["on a CPU"] == pytest.approx(3) and set(found.runs["on a CPU"]) == {"four"}


def test_the_printed_lines_are_the_workshops(measured: pd.DataFrame) -> None:
    first, _, memory = workshop.lines(measured.iloc[0], pd.DataFrame(EPOCHS))
    assert first == (
        "Epoch [1/2] LR: 0.001000 | Loss (train, val): 3.000, 4.000 | Accuracy (train, val): 10.00%, 5.00% | "
        "Throughput: 3.3 img/s"
    )
    assert memory == "[gpu_memory_log - GPU 0] Peak = 2000 MiB, Avg = 775.00 MiB, Mode = 900 MiB"


def test_the_logs_have_the_columns_of_nvidia_smi_and_psrecord(measured: pd.DataFrame, tmp_path: Path) -> None:
    devices, processes = workshop.logs(tmp_path, "one1")
    assert list(devices) == ["timestamp", "index", "name", "memory.used [MiB]", "memory.total [MiB]"]
    assert devices["memory.used [MiB]"].tolist() == [size for _, size in READINGS]
    assert set(devices["memory.total [MiB]"]) == {24000}
    assert processes["Elapsed time"].tolist() == [time - 90 for time, _ in READINGS]


def test_the_adjusted_study_stands_beside_the_protocol_where_both_ran(measured: pd.DataFrame) -> None:
    protocol = workshop.configurations(measured, "protocol")
    both = workshop.confounds(protocol, protocol[protocol.world_size == 1])
    assert both.series.tolist() == ["protocol", "adjusted"] and set(both.config) == {"1 device"}
    assert len(workshop.beside(protocol, protocol)) == 4
    assert workshop.same_devices(protocol).empty
