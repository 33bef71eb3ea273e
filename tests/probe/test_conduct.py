"""The examination itself: in step, in time, heard to the end whatever hangs. Two ranks as threads, a real store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import pytest
import torch.distributed as dist

from hpc_utils.probe.bench import Bench, Options
from hpc_utils.probe.box import boxed
from hpc_utils.probe.check import Check, Verdict, each, failed, passed
from hpc_utils.probe.conduct import Conductor, Probe
from hpc_utils.probe.exchange import Exchange, Silence

SECONDS = 6.0  # of the usual 120: every limit is a twentieth
FOREVER = threading.Event()


def probe(look: Callable[[Bench], dict], name: str = "check", **how: object) -> Probe:
    return Probe(look, {name: each(lambda facts: passed(str(facts)))}, **how)


def examine(*probes: Probe, world: int = 2, absent: tuple[int, ...] = (), seconds: float = SECONDS) -> list[Check]:
    """What rank 0 finds; the others but `absent` follow in threads."""
    store = dist.HashStore()
    ranks = [
        Conductor(Bench(Options(seconds), Exchange(store, rank), rank=rank, world=world, host=f"node{rank}"), probes)
        for rank in range(world)
    ]
    followers = [
        threading.Thread(target=one.follow, daemon=True) for one in ranks[1:] if one.bench.rank not in absent
    ]
    for follower in followers:
        follower.start()
    checks = list(ranks[0].lead(lambda what: None))
    for follower in followers:
        follower.join(SECONDS)
        assert not follower.is_alive()
    assert ranks[0].complete is not absent or not absent
    return checks


def named(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_every_rank_looks_and_rank_0_judges() -> None:
    checks = examine(probe(lambda bench: {"rank": bench.rank, "hosts": bench.hosts}))
    assert [check.name for check in checks] == ["ranks", "check"]
    assert named(checks, "ranks").verdict is Verdict.PASS
    assert named(checks, "check").measured == str({"rank": 0, "hosts": ["node0", "node1"]})


def test_who_looks() -> None:
    looked: dict[str, list[int]] = {"rank": [], "node": [], "main": []}
    for who, ranks in looked.items():
        examine(probe(lambda bench, ranks=ranks: ranks.append(bench.rank) or {}, who=who))
    assert {who: sorted(ranks) for who, ranks in looked.items()} == {"rank": [0, 1], "node": [0, 1], "main": [0]}
    assert [probe(dict, who="node").is_for(rank, 4) for rank in range(6)] == [True, False, False, False, True, False]


def test_one_look_may_serve_several_checks() -> None:
    double = Probe(lambda bench: {}, {"a": each(lambda facts: passed("1")), "b": each(lambda facts: passed("2"))})
    assert [check.measured for check in examine(double)][1:] == ["1", "2"]


def test_a_look_that_hangs_on_one_rank_fails_there_and_the_others_are_still_made() -> None:
    def hang(bench: Bench) -> dict:
        if bench.rank == 1:
            FOREVER.wait()
        return {}

    checks = examine(probe(hang, "sick", seconds=10, stuck="pull the plug"), probe(lambda bench: {}, "well"))
    sick = named(checks, "sick")
    assert (sick.verdict, sick.where, sick.fix) == (Verdict.FAIL, "node1 rank 1", "pull the plug")
    assert named(checks, "well").verdict is Verdict.PASS


def test_after_a_hanging_collective_no_other_is_tried() -> None:
    tried = []
    checks = examine(
        probe(lambda bench: FOREVER.wait(), "collective", seconds=10, together=True),
        probe(lambda bench: tried.append(bench.rank) or {}, "another", together=True),
        probe(lambda bench: {}, "alone"),
    )
    assert named(checks, "collective").verdict is Verdict.FAIL
    assert named(checks, "another").verdict is Verdict.UNKNOWN
    assert "collective" in named(checks, "another").measured
    assert tried == []
    assert named(checks, "alone").verdict is Verdict.PASS


def test_a_look_that_raises_is_unknown_and_told() -> None:
    def fall(bench: Bench) -> dict:
        if bench.rank == 1:
            raise ValueError("strange machine")
        return {}

    found = named(examine(probe(fall)), "check")
    assert (found.verdict, found.where) == (Verdict.UNKNOWN, "node1 rank 1")
    assert "strange machine" in found.measured


def test_a_judge_of_all_ranks_is_not_asked_without_one_of_them() -> None:
    def fall(bench: Bench) -> dict:
        if bench.rank == 1:
            raise ValueError("strange machine")
        return {}

    def judge(seen: list) -> Check:
        return failed(f"{len(seen)} ranks", "", "")

    together = Probe(fall, {"check": judge}, together=True)
    assert named(examine(together), "check").verdict is Verdict.UNKNOWN
    assert named(examine(Probe(fall, {"check": judge})), "check").measured == "1 ranks"


def test_a_judge_that_is_upset_costs_only_its_check() -> None:
    upset = Probe(lambda bench: {}, {"check": lambda seen: passed(seen[0].facts["missing"])})
    found = named(examine(upset), "check")
    assert found.verdict is Verdict.UNKNOWN
    assert "KeyError" in found.measured


def test_a_rank_that_never_appears_is_named_and_collectives_are_left_out() -> None:
    checks = examine(
        probe(lambda bench: {}, "alone"), probe(lambda bench: {}, "all", together=True), world=3, absent=(2,)
    )
    roll = named(checks, "ranks")
    assert (roll.verdict, roll.where) == (Verdict.FAIL, "rank 2 (node 2)")
    assert named(checks, "alone").verdict is Verdict.PASS
    assert named(checks, "all").verdict is Verdict.UNKNOWN


def test_no_look_is_begun_when_the_time_is_over() -> None:
    slow = [probe(lambda bench: time.sleep(0.4) or {}, f"slow{number}", seconds=100) for number in range(8)]
    began = time.monotonic()
    checks = examine(*slow, seconds=2.0)
    assert time.monotonic() - began < 60
    assert named(checks, "slow0").verdict is Verdict.PASS
    last = named(checks, "slow7")
    assert last.verdict is Verdict.UNKNOWN
    assert "no time left" in last.measured


def test_a_box_has_three_ends() -> None:
    assert boxed(lambda: {"a": 1}, 5) == {"facts": {"a": 1}}
    assert "ZeroDivisionError" in boxed(lambda: 1 / 0, 5)["fault"]
    assert boxed(FOREVER.wait, 0.05) == {"stuck": 0.05}


def test_words_come_from_those_who_speak_in_time() -> None:
    store = dist.HashStore()
    first, second = Exchange(store, 0), Exchange(store, 1)
    first.post("roll", {"host": "a"})
    assert first.collect("roll", range(2), 0.05) == {0: {"host": "a"}}
    second.post("roll", {"host": "b"})
    assert first.collect("roll", range(2), 5) == {0: {"host": "a"}, 1: {"host": "b"}}
    first.announce("hosts", ["a", "b"])
    assert second.hear("hosts", 5) == ["a", "b"]
    with pytest.raises(Silence, match="rank 0 said nothing"):
        second.hear("never", 0.05)


def test_a_process_that_nobody_launched_is_alone(monkeypatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    bench = Bench.from_environment(Options(), Exchange.open(1))
    assert (bench.rank, bench.world, bench.nodes, bench.is_main) == (0, 1, 1, True)
    for name, value in {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    bench = Bench.from_environment(Options(), bench.exchange)
    assert (bench.rank, bench.world, bench.local_rank, bench.ranks_per_node, bench.nodes) == (5, 8, 1, 4, 2)


def test_the_plan_names_every_check_once_and_its_looks_fit_into_two_minutes() -> None:
    from hpc_utils.probe.plan import PLAN

    names = [name for one in PLAN for name in one.judges]
    assert len(names) == len(set(names)) == 22 - 1
    assert json.dumps(names)
    assert all(one.stuck for one in PLAN)
