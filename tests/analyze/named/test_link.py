"""Links and storage: the real rehearsal's numbers, with the probe's file behind each."""

from __future__ import annotations

import pytest

from hpc_utils import paths
from hpc_utils.analyze import link
from hpc_utils.analyze.named import link as named
from hpc_utils.records import probes

REHEARSAL = paths.root() / "results/reference/rehearsal"


def by_name(values):
    found = {value.name: value for value in values}
    assert len(found) == len(values)
    return found


def test_links_are_those_of_the_newest_record():
    table = link.table(list(probes.read("allreduce", REHEARSAL)))
    found = by_name(named.links(table))
    row = table.iloc[0]
    value = found["link.bandwidth.2x1"]
    assert value.value == pytest.approx(8 * row.bandwidth) and value.low == pytest.approx(8 * row.bandwidth_low)
    assert value.files == (f"probes/allreduce/{row['name']}.json",) and (REHEARSAL / value.files[0]).is_file()
    assert found["link.latency.2x1"].value == row.latency
