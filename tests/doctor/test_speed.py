"""What ranks compute: stragglers, and throttled clocks."""

from __future__ import annotations

import pytest

from hpc_utils.doctor import speed
from hpc_utils.doctor.check import Verdict

from .conftest import seen


def ranks(*rates: float) -> list:
    """Ranks that compute so many GFLOP/s in fp32."""
    return seen(*({"device": "A100", "on": "cuda:0", "gflops": {"fp32": rate, "bf16": 1e5}} for rate in rates))


@pytest.mark.parametrize(
    ("rates", "verdict", "where"),
    [
        ((19500, 19000, 17000), Verdict.PASS, ""),
        ((100, 81, 100), Verdict.PASS, ""),  # four fifths of the median are enough
        ((100, 79, 101, 100), Verdict.FAIL, "node1 rank 1"),
        ((97,), Verdict.NOT_APPLICABLE, ""),
    ],
)
def test_stragglers(rates, verdict, where) -> None:
    found = speed.judge_compute(ranks(*rates))
    assert (found.verdict, found.where) == (verdict, where)


@pytest.mark.parametrize(("load", "verdict"), [(0.04, Verdict.PASS), (0.06, Verdict.UNKNOWN)])
def test_load_by_others(load: float, verdict: Verdict) -> None:
    assert speed.judge_load({"load": None}).verdict is Verdict.NOT_APPLICABLE
    found = speed.judge_load.of(seen({"load": 0.0}, {"load": load}))
    assert (found.verdict, found.where) == (verdict, "node1 rank 1" if load > 0.05 else "")


def test_clocks_are_judged_by_kind_of_device() -> None:
    cpu = {"mhz": 3000, "hot": 0, "throttled": 0}
    assert speed.judge_clocks({"kind": "cpu", "clocks": [cpu, cpu, cpu]}).verdict is Verdict.PASS
    assert speed.judge_clocks({"kind": "cuda", "clocks": [None, None, None]}).verdict is Verdict.UNKNOWN
