"""Costs by configuration, and what is recommended, as the frames have them."""

from __future__ import annotations

import pytest

from hpc_utils import paths, records
from hpc_utils.analyze import cost, recommend
from hpc_utils.analyze.named import cost as named


class Node:
    unit = "EUR"

    def cost(self, nodes, ranks_per_node, hours):
        return 2.0 * nodes * hours


@pytest.fixture(scope="module")
def found() -> records.Records:
    return records.load(paths.root() / "results/reference/epyc-2core", study="laptop")


def test_each_configuration_has_its_costs_and_runs(found):
    table = cost.to_finish(found.runs, found.epochs, dict.fromkeys(found.runs.hardware_id, Node()))
    values = named.spent(table)
    by_name = {value.name: value for value in values}
    assert len(by_name) == len(values)
    row = table[(table.world_size == 2) & (table.global_batch == 1024) & (table.precision == "bf16")].iloc[0]
    name = "2.ddp.global-batch-1024.bf16"
    hours = by_name[f"cost.device-hours.{name}"]
    assert (hours.value, hours.low, hours.repeats) == (row.device_hours, row.device_hours_low, 3)
    assert set(hours.runs) == set(row.runs) and len(row.runs) == 3
    assert by_name[f"cost.price.{name}"].unit == "EUR"
    assert by_name[f"cost.price.{name}"].value == pytest.approx(2 * row.node_hours)
    assert not any(name.startswith("cost.energy") for name in by_name), "no counter told any"


def test_a_price_in_node_hours_is_not_said_twice(found):
    node = Node()
    node.unit = "node-hours"
    table = cost.to_finish(found.runs, found.epochs, dict.fromkeys(found.runs.hardware_id, node))
    assert not any(value.name.startswith("cost.price") for value in named.spent(table))


def test_recommendations_are_words(found):
    chosen = recommend.recommend(cost.to_finish(found.runs, found.epochs, {}))
    values = {value.name: value for value in named.recommended(chosen, "cnn on digits", found.runs.run_id)}
    row = chosen[chosen.purpose == "production"].iloc[0]
    assert values["cost.recommended.production.cnn-on-digits"].value == recommend.describe(row)
    assert values["cost.reason.production.cnn-on-digits"].value == row.reason
