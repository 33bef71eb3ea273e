"""The runner: ranks in step, each check within its time, results to the end whatever hangs. Ranks are threads with a
real store."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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
    worst_of,
)
from hpc_utils.doctor.mailbox import Mailbox
from hpc_utils.doctor.runner import CHECKS, Runner

from .conftest import seen

SECONDS = 6.0  # of the usual 120: every limit is a twentieth
FOREVER = threading.Event()


def check(measure: Callable[[Context], dict], name: str = "check", **how: object) -> Check:
    return Check(
        measure, [judge(name, "well", each=True)(lambda facts: passed(str(facts)))], **{"seconds": 10.0} | how
    )


def run(*checks: Check, world: int = 2, absent: tuple[int, ...] = (), seconds: float = SECONDS) -> dict[str, Result]:
    """{name: result} of rank 0; the others but `absent` follow in threads."""
    store = dist.HashStore()
    runners = [
        Runner(Context(Options(seconds), Mailbox(store), rank=rank, world_size=world, host=f"node{rank}"), checks)
        for rank in range(world)
    ]
    with ThreadPoolExecutor(world) as pool:
        followers = [pool.submit(runners[rank].follow) for rank in range(1, world) if rank not in absent]
        results = {result.name: result for result in runners[0].lead(lambda what: None)}
        for follower in followers:
            follower.result(SECONDS)
    assert runners[0].complete is not bool(absent)
    return results


def verdicts(results: dict[str, Result]) -> dict[str, str]:
    return {name: str(result.verdict) for name, result in results.items()}


def hang(context: Context) -> dict:
    return FOREVER.wait() if context.rank == 1 else {}


def fall(context: Context) -> dict:
    if context.rank == 1:
        raise ValueError("strange machine")
    return {}


@pytest.mark.parametrize(("scope", "ranks"), [("rank", [0, 1]), ("node", [0, 1]), ("main", [0])])
def test_the_ranks_of_a_scope_measure_and_rank_0_judges(scope, ranks) -> None:
    measured: list[int] = []
    judges = [judge(name, each=True)(lambda facts, name=name: passed(name + facts["hosts"][1])) for name in "ab"]
    several = Check(lambda context: measured.append(context.rank) or {"hosts": context.hosts}, judges, 10.0, scope)
    results = run(several)
    assert verdicts(results) == dict.fromkeys(("ranks", "a", "b"), "pass")
    assert (results["a"].measured, results["b"].measured) == ("anode1", "bnode1")
    assert sorted(measured) == ranks
    assert several.runs_on(0, 4) and several.runs_on(5, 4) is (scope == "rank")


def test_a_check_that_hangs_fails_where_it_does_and_no_other_collective_is_tried() -> None:
    results = run(
        check(hang, "sick", on_timeout="pull the plug"),
        check(hang, "hangs", collective=True),
        check(lambda context: {}, "another", collective=True),
        check(lambda context: {}, "alone"),
    )
    sick = results["sick"]
    assert (sick.verdict, sick.where, sick.fix) == (Verdict.FAIL, "node1 rank 1", "pull the plug")
    expected = {"ranks": "pass", "sick": "fail", "hangs": "fail", "another": "unknown", "alone": "pass"}
    assert verdicts(results) == expected


def test_a_check_or_judge_that_raises_is_unknown_and_costs_only_its_result() -> None:
    found = run(check(fall))["check"]
    assert (found.verdict, found.where) == (Verdict.UNKNOWN, "node1 rank 1")
    assert "strange machine" in found.measured
    broken = judge("check")(lambda seen: passed(seen[0].facts["missing"]))
    assert run(Check(lambda context: {}, [broken], 10.0))["check"].verdict is Verdict.UNKNOWN


def test_a_judge_of_all_ranks_runs_only_with_the_facts_of_all() -> None:
    judges = [judge("check", "two")(lambda seen: failed(f"{len(seen)} ranks"))]
    assert run(Check(fall, judges, 10.0, collective=True))["check"].verdict is Verdict.UNKNOWN
    found = run(Check(fall, judges, 10.0))["check"]
    assert (found.measured, found.expected) == ("1 ranks", "two")


def test_a_rank_that_never_starts_is_named_and_collectives_are_skipped() -> None:
    checks = check(lambda context: {}, "alone"), check(lambda context: {}, "all", collective=True)
    results = run(*checks, world=3, absent=(2,))
    assert verdicts(results) == {"ranks": "fail", "alone": "pass", "all": "unknown"}
    assert results["ranks"].where == "rank 2 (node 2)"


def test_what_needs_several_ranks_or_nodes_does_not_apply_to_one() -> None:
    checks = [check(lambda context: {}, several, several=several) for several in ("ranks", "nodes")]
    assert verdicts(run(*checks, world=1)) == {"ranks": "not applicable", "nodes": "not applicable"}
    assert verdicts(run(*checks)) == {"ranks": "pass", "nodes": "pass"}


def test_no_check_begins_when_the_time_is_over() -> None:
    slow = [check(lambda context: time.sleep(0.4) or {}, f"slow{number}", seconds=100) for number in range(8)]
    began = time.monotonic()
    results = run(*slow, seconds=2.0)
    assert time.monotonic() - began < 60
    assert (results["slow0"].verdict, results["slow7"].verdict) == (Verdict.PASS, Verdict.UNKNOWN)


@pytest.mark.parametrize(("variables", "place"), [({}, (0, 1, 0, 1)), ((5, 8, 1, 4), (5, 8, 1, 2))])
def test_the_place_of_a_rank(monkeypatch, variables, place) -> None:
    for name in (names := ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        monkeypatch.delenv(name, raising=False)
    for name, value in zip(names, variables, strict=False):
        monkeypatch.setenv(name, str(value))
    context = Context.from_environment(Options(), mailbox=None)
    assert (context.rank, context.world_size, context.local_rank, context.nodes) == place


def test_every_check_has_a_name_of_its_own() -> None:
    names = [judge.name for one in CHECKS for judge in one.judges]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("judgements", "verdict", "where"),
    [
        ([passed, passed], Verdict.PASS, ""),
        ([passed, failed, unknown], Verdict.FAIL, "node1 rank 1"),
        ([passed, unknown], Verdict.UNKNOWN, "node1 rank 1"),
        ([not_applicable, passed], Verdict.PASS, "node1 rank 1"),
        ([failed, failed], Verdict.FAIL, ""),
    ],
)
def test_the_worst_counts_and_is_located_unless_it_is_everywhere(judgements, verdict, where) -> None:
    worst = worst_of(lambda facts: facts["judge"]("x"), seen(*({"judge": judge} for judge in judgements)))
    assert (worst.verdict, worst.where) == (verdict, where)


def test_many_locations_are_counted() -> None:
    assert locations(seen(*[{}] * 6)) == "node0 rank 0, node1 rank 1, node2 rank 2, node3 rank 3 and 2 more"


def test_the_process_starts_without_torch() -> None:
    code = "import hpc_utils.doctor.__main__, sys; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "torch" not in printed.split()
