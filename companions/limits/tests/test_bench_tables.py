"""Links, and loader times, from records whose answer is known."""

from __future__ import annotations

import math

import pytest

from companions.limits.bench_tables import link_table, loader_times
from hpc_utils.allreduce_cost import Link
from tests.analyze.model import test_links


def place(name: str, cold: float, filesystem: str = "lustre") -> dict:
    """A place whose 1000 images of 1000 B are read in `cold` s, and in 0.1 s from memory."""
    passes = {state: {"seconds": [seconds] * 3, "bytes": 10**6} for state, seconds in (("cold", cold), ("warm", 0.1))}
    loader = [{"batch": batch, "seconds_per_batch": [batch / 10**4] * 3} for batch in (32, 100)]
    return {"place": name, "filesystem": filesystem, **passes, "loader": loader}


def record(*places: dict, ranks: int = 1) -> dict:
    return {"dataset": "x", "bytes": 10**6, "images": 1000, "nodes": 1, "ranks_per_node": ranks, "places": [*places]}


def test_a_first_epoch_takes_what_cold_reads_take_more() -> None:
    made = record(place("shared", 1.1))
    row = loader_times(made).set_index("batch").loc[100]
    assert row.seconds == pytest.approx(0.01)
    assert row.rate == pytest.approx(10_000)
    assert row.first_seconds == pytest.approx(0.01 + 0.1)  # a tenth of the images, of the second more


def test_ranks_that_read_at_once_share_what_a_pass_takes() -> None:
    row = loader_times(record(place("shared", 1.1), ranks=4)).set_index("batch").loc[100]
    assert row.first_seconds == pytest.approx(0.01 + 0.4)


def test_a_read_from_a_cache_is_not_passed_off_as_cold() -> None:
    assert loader_times(record(place("shared", 0.11))).first_seconds.isna().all()


def test_memory_has_no_cold_read() -> None:
    row = loader_times(record(place("memory", 1.1, filesystem="tmpfs"))).iloc[0]
    assert math.isnan(row.first_seconds) and row.seconds > 0


def test_a_place_that_could_not_be_used_is_left_out() -> None:
    made = record(place("shared", 1.0), {"place": "memory", "filesystem": "tmpfs", "skipped": "no room"})
    assert set(loader_times(made).place) == {"shared"}


def test_cold_reads_that_came_out_faster_by_chance_cost_nothing() -> None:
    noisy = place("shared", 1.1)
    noisy["cold"] = {"seconds": [1.0, 0.05, 1.0], "bytes": 10**6}
    first = loader_times(record(noisy)).first_seconds
    assert (first >= loader_times(record(noisy)).seconds).all() and not any(map(math.isnan, first))


def test_each_group_of_a_record_is_a_row_with_its_link() -> None:
    made = test_links.record(Link(1e-4, 1e9), 2, 0) | {"name": "here", "link_gbit": 8}
    (row,) = link_table([made]).to_dict("records")
    assert (row["name"], row["group"], row["link_gbit"], row["caveat"]) == ("here", "all", 8, "")
    assert row["latency"] == pytest.approx(1e-4) and row["bandwidth"] == pytest.approx(1e9)
