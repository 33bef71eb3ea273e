"""The runner: ranks in step, each check within its time, results to the end whatever hangs. Ranks are threads with a
real store."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch.distributed as dist

from hpc_utils.doctor.check import (
    Check,
    Context,
    Options,
    Result,
    Verdict,
    failed,
    judge,
    locations,
    not_applicable,
    passed,
    unknown,
    worst,
    worst_of,
)
from hpc_utils.doctor.process import run_with_timeout
from hpc_utils.doctor.runner import CHECKS, Mailbox, Runner

from .conftest import seen

SECONDS = 6.0  # of the usual 120: every limit is a twentieth
FOREVER = threading.Event()


def check(measure: Callable[[Context], dict], name: str = "check", **how: object) -> Check:
    return Check(measure, [judge(name, each=True)(lambda facts: passed(str(facts)))], **({"seconds": 10.0} | how))


def run(*checks: Check, world: int = 2, absent: tuple[int, ...] = (), seconds: float = SECONDS) -> dict[str, Result]:
    """{name: result} of rank 0; the others but `absent` follow in threads."""
    store = dist.HashStore()
    runners = [
        Runner(Context(Options(seconds), Mailbox(store), rank=rank, world_size=world, host=f"node{rank}"), checks)
        for rank in range(world)
    ]
    followers = [
        threading.Thread(target=runners[rank].follow, daemon=True) for rank in {*range(1, world)} - {*absent}
    ]
    for follower in followers:
        follower.start()
    results = {result.name: result for result in runners[0].lead(lambda what: None)}
    for follower in followers:
        follower.join(SECONDS)
        assert not follower.is_alive()
    assert runners[0].complete is not bool(absent)
    return results


def hang(context: Context) -> dict:
    if context.rank == 1:
        FOREVER.wait()
    return {}


def fall(context: Context) -> dict:
    if context.rank == 1:
        raise ValueError("strange machine")
    return {}


def test_every_rank_measures_and_rank_0_judges() -> None:
    results = run(check(lambda context: {"rank": context.rank, "hosts": context.hosts}))
    assert list(results) == ["ranks", "check"]
    assert results["ranks"].verdict is Verdict.PASS
    assert results["check"].measured == str({"rank": 0, "hosts": ["node0", "node1"]})


@pytest.mark.parametrize(("scope", "ranks"), [("rank", [0, 1]), ("node", [0, 1]), ("main", [0])])
def test_the_scope_of_a_check(scope, ranks) -> None:
    measured: list[int] = []
    run(check(lambda context: measured.append(context.rank) or {}, scope=scope))
    assert sorted(measured) == ranks
    assert check(dict, scope="node").runs_on(4, ranks_per_node=4) and not check(dict, scope="node").runs_on(5, 4)


def test_one_measurement_may_serve_several_results() -> None:
    judges = [judge(name, each=True)(lambda facts, name=name: passed(name.upper())) for name in "ab"]
    double = Check(lambda context: {}, judges, 10.0)
    results = run(double)
    assert (results["a"].measured, results["b"].measured) == ("A", "B")


def test_a_check_that_hangs_on_one_rank_fails_there_and_the_others_are_still_made() -> None:
    results = run(check(hang, "sick", on_timeout="pull the plug"), check(lambda context: {}, "well"))
    sick = results["sick"]
    assert (sick.verdict, sick.where, sick.fix) == (Verdict.FAIL, "node1 rank 1", "pull the plug")
    assert results["well"].verdict is Verdict.PASS


def test_after_a_collective_that_hangs_no_other_is_tried() -> None:
    tried: list[int] = []
    results = run(
        check(lambda context: FOREVER.wait(), "hangs", collective=True),
        check(lambda context: tried.append(context.rank) or {}, "another", collective=True),
        check(lambda context: {}, "alone"),
    )
    assert results["hangs"].verdict is Verdict.FAIL
    assert (results["another"].verdict, tried) == (Verdict.UNKNOWN, [])
    assert results["alone"].verdict is Verdict.PASS


def test_a_check_that_raises_is_unknown_and_named() -> None:
    found = run(check(fall))["check"]
    assert (found.verdict, found.where) == (Verdict.UNKNOWN, "node1 rank 1")
    assert "strange machine" in found.measured


def test_a_judge_of_all_ranks_runs_only_with_the_facts_of_all() -> None:
    judges = [judge("check", "two")(lambda seen: failed(f"{len(seen)} ranks"))]
    assert run(Check(fall, judges, 10.0, collective=True))["check"].verdict is Verdict.UNKNOWN
    found = run(Check(fall, judges, 10.0))["check"]
    assert (found.measured, found.expected) == ("1 ranks", "two")


def test_a_judge_that_raises_costs_only_its_result() -> None:
    broken = judge("check")(lambda seen: passed(seen[0].facts["missing"]))
    assert run(Check(lambda context: {}, [broken], 10.0))["check"].verdict is Verdict.UNKNOWN


def test_a_rank_that_never_starts_is_named_and_collectives_are_skipped() -> None:
    checks = check(lambda context: {}, "alone"), check(lambda context: {}, "all", collective=True)
    results = run(*checks, world=3, absent=(2,))
    assert (results["ranks"].verdict, results["ranks"].where) == (Verdict.FAIL, "rank 2 (node 2)")
    assert (results["alone"].verdict, results["all"].verdict) == (Verdict.PASS, Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("several", "world", "verdict"),
    [("ranks", 1, "not applicable"), ("ranks", 2, "pass"), ("nodes", 1, "not applicable"), ("nodes", 2, "pass")],
)
def test_what_needs_several_ranks_or_nodes_does_not_apply_to_one(several, world, verdict) -> None:
    assert run(check(lambda context: {}, several=several), world=world)["check"].verdict == verdict


def test_no_check_begins_when_the_time_is_over() -> None:
    slow = [check(lambda context: time.sleep(0.4) or {}, f"slow{number}", seconds=100) for number in range(8)]
    began = time.monotonic()
    results = run(*slow, seconds=2.0)
    assert time.monotonic() - began < 60
    assert (results["slow0"].verdict, results["slow7"].verdict) == (Verdict.PASS, Verdict.UNKNOWN)


def test_a_function_returns_raises_or_is_too_late() -> None:
    assert run_with_timeout(lambda: {"a": 1}, 5) == {"facts": {"a": 1}}
    assert "ZeroDivisionError" in run_with_timeout(lambda: 1 / 0, 5)["error"]
    assert run_with_timeout(FOREVER.wait, 0.05) == {"timeout": 0.05}


def test_values_are_received_from_the_ranks_that_put_them_in_time() -> None:
    store = dist.HashStore()
    first, second = Mailbox(store), Mailbox(store)
    second.put("topic/1", {"host": "b"})
    assert first.collect("topic", range(3), 0.05) == {1: {"host": "b"}}
    with pytest.raises(TimeoutError):
        first.get("never", 0.05)


def test_the_place_of_a_rank(monkeypatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    context = Context.from_environment(Options(), Mailbox.connect(1))
    assert (context.rank, context.world_size, context.nodes) == (0, 1, 1)
    for name, value in {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    context = Context.from_environment(Options(), context.mailbox)
    assert (context.rank, context.local_rank, context.ranks_per_node, context.nodes) == (5, 1, 4, 2)


def test_every_check_has_a_name_of_its_own_and_a_fix_if_it_hangs() -> None:
    names = [judge.name for one in CHECKS for judge in one.judges]
    assert len(names) == len(set(names))
    assert all(one.on_timeout for one in CHECKS)


def state(facts: dict) -> Result:
    return {
        "good": passed("well"),
        "bad": failed("ill", "mend it"),
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
def test_the_worst_counts_and_is_located_unless_it_is_everywhere(states, verdict, where) -> None:
    found = worst_of(state, seen(*({"is": one} for one in states)))
    assert (found.verdict, found.where) == (verdict, where)


def test_the_first_of_two_equal_results_and_many_locations() -> None:
    assert worst([passed("a"), failed("b"), failed("c")]).measured == "b"
    assert locations(seen(*[{}] * 6)) == "node0 rank 0, node1 rank 1, node2 rank 2, node3 rank 3 and 2 more"


def test_the_process_starts_without_torch() -> None:
    code = "import hpc_utils.doctor.__main__, sys; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "torch" not in printed.split()
