"""The worst verdict wins and says where it was found."""

from __future__ import annotations

import pytest

from hpc_utils.probe.check import (
    Check,
    Verdict,
    count,
    each,
    failed,
    hosts,
    not_applicable,
    passed,
    places,
    unknown,
    worst,
)

from .conftest import seen


def judge(facts: dict) -> Check:
    return {
        "good": passed("well"),
        "bad": failed("ill", "well", "mend it"),
        "dark": unknown("no light"),
        "none": not_applicable("nothing there"),
    }[facts["is"]]


@pytest.mark.parametrize(
    ("states", "verdict", "where"),
    [
        (["good", "good"], Verdict.PASS, ""),
        (["good", "bad", "dark"], Verdict.FAIL, "node1 rank 1"),
        (["good", "dark"], Verdict.UNKNOWN, "node1 rank 1"),
        (["none", "good"], Verdict.PASS, "node1 rank 1"),
        (["bad", "bad"], Verdict.FAIL, ""),
    ],
)
def test_the_worst_wins_and_is_placed_unless_it_is_everywhere(states, verdict, where) -> None:
    found = each(judge)(seen(*({"is": state} for state in states)))
    assert (found.verdict, found.where) == (verdict, where)


def test_of_two_as_bad_the_first_is_told() -> None:
    assert worst([passed("a"), failed("b", "", ""), failed("c", "", "")]).measured == "b"


def test_many_places_are_counted() -> None:
    assert places(seen(*[{}] * 6)) == "node0 rank 0, node1 rank 1, node2 rank 2, node3 rank 3 and 2 more"


def test_ranks_are_told_apart_by_host() -> None:
    assert {host: [one.rank for one in ranks] for host, ranks in hosts(seen({}, {}, {}, per_node=2)).items()} == {
        "node0": [0, 1],
        "node1": [2],
    }


def test_a_number_of_things() -> None:
    assert (count(1, "rank"), count(2, "rank"), count(0, "rank")) == ("1 rank", "2 ranks", "0 ranks")
