"""What a chapter rests on: counts of runs, repeats and hours as the records have them."""

from __future__ import annotations

import pytest

from hpc_utils import paths, records
from hpc_utils.analyze import cost, points, scaling
from hpc_utils.analyze.cost import summary
from hpc_utils.publish import formatting

REFERENCE = paths.root() / "results/reference"


@pytest.fixture(scope="module")
def found() -> records.Records:
    return records.load(REFERENCE / "epyc-2core", study="laptop")


def test_counts_and_hours_are_the_records(found) -> None:
    row = summary(found, "laptop").iloc[0]
    assert (row.study, row.complete, row.ranks) == ("laptop", len(found.runs), 2)
    assert row.fewest_repeats == row.most_repeats == 3 and row.configurations * 3 == len(found.runs)
    assert row.training_seconds == pytest.approx(found.epochs.seconds.sum())
    assert row.training_seconds < row.wall_seconds < 3600 * row.device_hours <= 2 * row.wall_seconds
    assert row.core_hours == pytest.approx(row.device_hours), "a device of this study is one core"
    assert row.energy_counted == 0 and row.energy_kwh != row.energy_kwh
    row = summary(records.Records(found.runs, found.epochs.assign(energy_joules=3.6e6))).iloc[0]
    assert (row.energy_kwh, row.energy_counted) == (pytest.approx(len(found.epochs)), len(found.runs))
    (row,) = summary(records.Records(found.runs.iloc[:0], found.epochs.iloc[:0])).to_dict("records")
    assert row == {"study": "", "complete": 0, "refused": 0, "unfinished": 0}


def test_accuracies_are_those_of_the_last_epoch(found) -> None:
    table = points.learned(found.runs, found.epochs)
    assert set(table.metric) == {"test_accuracy"} and set(table.unit) == {"share"}
    own = table[(table.world_size == 2) & (table.global_batch == 1024) & (table.precision == "fp32")].iloc[0]
    behind = found.runs[found.runs.run_id.isin(own.runs)]
    assert own.value == behind.test_accuracy.astype(float).median() and own.repeats == len(behind) == 3
    assert len(table) == 8 and (table.value_high <= 1).all() and (table.value_low <= table.value).all()


def test_a_workload_without_accuracy_has_its_own_metric_or_its_loss(found) -> None:
    plain = found.epochs.assign(test_accuracy=None)
    assert set(points.learned(found.runs, plain).metric) == {"test_loss"}
    assert points.learned(found.runs, plain.assign(test_loss=None)).empty
    own = points.learned(found.runs, plain.assign(test_r2=-1.0 * plain.epoch))
    assert set(own.metric) == {"test_r2"} and set(own.unit) == {"ratio"}
    assert (own.value == -own.epochs).all() and own.value_low.isna().all(), "no interval of negative values"


def test_every_metric_of_a_workload_is_there_accuracy_first(found) -> None:
    table = points.learned(found.runs, found.epochs.assign(test_r2=0.5, test_mirrored_accuracy=0.7))
    assert table.metric.drop_duplicates().tolist() == ["test_accuracy", "test_r2", "test_mirrored_accuracy"]
    assert table.metric.value_counts().unique().tolist() == [8]
    assert table[table.metric == "test_accuracy"].equals(points.learned(found.runs, found.epochs))
    configurations = scaling.comparison(found.runs, found.epochs.assign(test_r2=0.5))
    assert len(configurations) == 8 and set(configurations.metric) == {"test_accuracy"}


def test_tokens_per_second_are_tokens_over_the_time_of_training(found) -> None:
    assert points.unit_rates(found.runs).empty
    runs = found.runs.assign(unit="tokens", units=3.0 * found.runs.samples)
    rates, speeds = points.unit_rates(runs), scaling.throughput(runs)
    assert set(rates.metric) == {"tokens per second"} and rates.runs.tolist() == speeds.runs.tolist()
    for end in ("", "_low", "_high"):
        assert rates[f"value{end}"].tolist() == pytest.approx((3 * speeds[f"throughput{end}"]).tolist())


def test_the_chapter_and_the_system_s_page_count_alike() -> None:
    found = records.load(REFERENCE / "rehearsal")
    row, took = summary(found).iloc[0], cost.total(found.runs, found.epochs)
    assert row.device_hours == took["device_hours"] > 0
    assert row.core_hours == took["core_hours"] == pytest.approx(0.14 * row.device_hours), "a share of a core each"
    assert f"{formatting.number(row.core_hours)} core-hours" in (paths.root() / "SYSTEM.md").read_text()
