"""What a chapter rests on: counts of runs, repeats and hours as the records have them."""

from __future__ import annotations

import pytest

from hpc_utils import paths, records
from hpc_utils.analyze import accuracy, cost
from hpc_utils.analyze.named import study as named
from hpc_utils.publish import amounts, ledger, style
from hpc_utils.publish.documents import colophon
from hpc_utils.publish.documents.sets import ResultSet

REFERENCE = paths.root() / "results/reference"


@pytest.fixture(scope="module")
def found() -> records.Records:
    return records.load(REFERENCE / "epyc-2core", study="laptop")


def test_counts_and_hours_are_the_records(found):
    values = {value.name: value for value in named.whole(found)}
    assert values["study.runs"].value == len(found.runs) and len(values["study.runs"].runs) == len(found.runs)
    assert values["study.repeats"].value == 3 and values["study.configurations"].value * 3 == len(found.runs)
    assert values["study.samples"].value == found.epochs.samples.sum()
    training = values["study.training-seconds"].value
    assert training == pytest.approx(found.epochs.seconds.sum())
    wall, device = values["study.wall-seconds"].value, 3600 * values["study.device-hours"].value
    assert training < wall < device <= 2 * wall
    assert 3600 * values["study.core-hours"].value == pytest.approx(device), "a device of this study is one core"
    assert values["study.energy-runs"].value == 0 and "study.energy" not in values
    assert values["study.device"].value == "AMD EPYC"


def test_energy_is_summed_where_a_counter_told(found):
    counted = records.Records(found.runs, found.epochs.assign(energy_joules=3.6e6))
    values = {value.name: value for value in named.whole(counted)}
    assert values["study.energy"].value == pytest.approx(len(found.epochs))
    assert values["study.energy-runs"].value == len(found.runs)


def test_of_several_studies_each_has_its_own_names(found):
    names = {value.name for value in named.whole(found, "optimization-cpu")}
    assert "study.runs.optimization-cpu" in names and "study.runs" not in names


def test_nothing_measured_has_counts_alone(found):
    values = {
        value.name: value.value for value in named.whole(records.Records(found.runs.iloc[:0], found.epochs.iloc[:0]))
    }
    assert values == {"study.runs": 0, "study.refused": 0, "study.unfinished": 0}


def test_accuracies_are_those_of_the_last_epoch(found):
    table = accuracy.final(found.runs)
    values = {value.name: value for value in named.accuracies(table)}
    assert len(values) == len(table) == 8
    value = values["accuracy.2.ddp.global-batch-1024.fp32"]
    behind = found.runs[found.runs.run_id.isin(value.runs)]
    assert value.value == behind.test_accuracy.astype(float).median() and value.repeats == len(behind) == 3
    assert (table.high <= 1).all() and (table.low <= table.accuracy).all()


def test_the_chapter_the_colophon_and_the_system_s_page_count_alike():
    folder = REFERENCE / "rehearsal"
    found = records.load(folder)
    values = {value.name: value for value in named.whole(found)}
    took = cost.total(found.runs, found.epochs)
    assert values["study.device-hours"].value == took.device_hours > 0
    assert values["study.core-hours"].value == took.core_hours == pytest.approx(0.14 * took.device_hours), (
        "a share of a core each"
    )
    said = colophon._took(ResultSet("rehearsal", folder, ledger.read(folder)), found.runs)
    assert amounts.quantity(took.device_hours, "device-hours") in said
    assert amounts.quantity(took.core_hours, "core-hours") in said
    page = (paths.root() / "SYSTEM.md").read_text()
    assert f"{style.number(took.core_hours)} core-hours" in page
