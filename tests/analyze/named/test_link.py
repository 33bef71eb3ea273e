"""Links, storage and emulated devices: the real rehearsal's numbers, with the probe's file behind each."""

from __future__ import annotations

import pytest

from hpc_utils import paths, records
from hpc_utils.analyze import emulation, link, storage
from hpc_utils.analyze.named import link as named
from hpc_utils.records import probes

REHEARSAL = paths.root() / "results/reference/rehearsal"


def by_name(values):
    found = {value.name: value for value in values}
    assert len(found) == len(values)
    return found


def test_links_are_those_of_the_newest_record():
    given = list(probes.read("allreduce", REHEARSAL))
    table = link.table(given)
    found = by_name(named.links(table))
    row = table[table.link_gbit == 1].iloc[0]
    value = found["link.bandwidth.2x1.1gbit"]
    assert value.value == pytest.approx(8 * row.bandwidth) and value.low == pytest.approx(8 * row.bandwidth_low)
    assert value.files == (f"probes/allreduce/{row['name']}.json",) and (REHEARSAL / value.files[0]).is_file()
    unlimited = table[(table.nodes == 2) & table.link_gbit.isna()]
    assert len(unlimited) == 2 and found["link.latency.2x1"].value == unlimited.latency.iloc[0]
    assert found["link.latency.2x1.second"].value == unlimited.latency.iloc[1]


def test_emulated_runs_tell_how_slow_they_were_played():
    runs = records.load(REHEARSAL).runs
    found = by_name(named.emulated(runs[runs.emulated.astype(bool)]))
    assert found["emulated.dilation.8.1gbit"].value == 8 and found["emulated.dilation.4.300mbit"].value == 1
    behind = runs[runs.run_id.isin(found["emulated.dilation.8.1gbit"].runs)]
    assert set(behind.world_size) == {8} and len(behind) == found["emulated.repeats"].value == 3
    assert named.emulated(runs[:0]) == []


def test_storage_by_place_and_batch():
    record = probes.newest("storage", REHEARSAL)
    table = storage.loader(record)
    found = by_name(named.storage(table, record["name"]))
    row = table[(table.place == "shared") & (table.batch == 64)].iloc[0]
    value = found["storage.seconds.shared.batch-64"]
    assert (value.value, value.low, value.repeats) == (row.seconds, row.low, row.repeats)
    assert found["storage.rate.shared.batch-64"].value == row.rate
    assert (REHEARSAL / value.files[0]).is_file()


def test_emulated_beside_computed():
    runs = records.load(REHEARSAL).runs
    emulated = runs[runs.emulated.astype(bool)]
    table = emulation.against_computed(emulated, runs[~runs.emulated.astype(bool)])
    found = by_name(named.beside(table))
    row = table[table.link_gbit == 1].iloc[0]
    value = found["emulated.over-computed.2.1gbit"]
    assert (value.value, value.low, value.high) == (row.ratio, row.low, row.high)
    behind = runs[runs.run_id.isin(value.runs)]
    assert set(behind.emulated) == {True, False} and set(behind.link_gbit) == {1.0}
    assert len(behind) == row.computed_repeats + row.emulated_repeats
