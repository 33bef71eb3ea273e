"""Links and storage: the real rehearsal's numbers, with the probe's file behind each."""

from __future__ import annotations

import pytest

from hpc_utils import paths
from hpc_utils.analyze import link, storage
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


def test_storage_by_place_and_batch():
    record = probes.newest("storage", REHEARSAL)
    table = storage.loader(record)
    found = by_name(named.storage(table, record["name"]))
    row = table[(table.place == "shared") & (table.batch == 64)].iloc[0]
    value = found["storage.seconds.shared.batch-64"]
    assert (value.value, value.low, value.repeats) == (row.seconds, row.low, row.repeats)
    assert found["storage.rate.shared.batch-64"].value == row.rate
    assert (REHEARSAL / value.files[0]).is_file()
