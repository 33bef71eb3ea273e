"""Profiles as rows of a table: what the analysis says of devices, of phases, and of what a change gave."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze.profiles import tables
from hpc_utils.analyze.profiles.profiled_runs import Profile
from hpc_utils.analyze.profiles.readers import Reports
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, Timeline
from hpc_utils.analyze.profiles.verdict import Bound

from .timelines import MS, timeline

STEP = 10 * MS


def rank(number: int, late: int, steps: int = 6) -> Timeline:
    """Steps of 10 ms: 6 ms of computing, begun `late` ms late, then an all-reduce that ends with the step."""
    work, marks = [], []
    for step in range(steps):
        zero = step * STEP
        begin, end = zero + late * MS, zero + (late + 6) * MS
        work += [(begin, end, COMPUTE), (end, zero + 9 * MS, COMMUNICATION)]
        marks.append((zero, zero + STEP, f"ProfilerStep#{step}"))
    return timeline(work, marks, rank=number, world_size=2, device=number)


def profile(*phases: dict[str, float] | None, timelines: list[Timeline] | None = None, **more: Any) -> Profile:
    """Already read: a run for each of `phases`."""
    found = Profile("slow", "x", {}, **more)
    reports = {f"run-{number}": Reports(timelines or [], phases=one) for number, one in enumerate(phases)}
    vars(found)["_read"] = reports, ""
    return found


def rows(*found: Profile) -> list[dict[str, Any]]:
    return tables.profiles(found).to_dict("records")


def test_devices_have_shares_the_straggler_and_the_verdict() -> None:
    (found,) = rows(profile(DATA, DATA, timelines=[rank(0, late=0), rank(1, late=1)]))
    # Both span 59 ms, from the first step on; rank 0 communicates 18, rank 1 12: the late rank's 2 ms a step are the wire's.
    assert found["exposed"] == pytest.approx(30 / 118)
    assert (found["wire"], found["waiting"]) == pytest.approx((24 / 118, 6 / 118))
    assert found["busy"] + found["idle"] == pytest.approx(1)
    assert (found["straggler"], found["last"], found["turns"]) == ("rank 1, GPU 1", 6, 6)
    assert found["behind"] == pytest.approx(1e-3)
    assert found["verdict"] in set(Bound) and found["agreeing"] == found["judged"] == 1
    assert found["runs"] == ("run-0",) and "data" not in found and "repeats" not in found


DATA = {"data": 0.5, "forward": 0.2, "backward": 0.2, "optimizer": 0.1}


def test_phases_are_medians_over_repeats_with_their_runs() -> None:
    found, zero = rows(
        profile(DATA, DATA | {"data": 1.5}, DATA | {"data": 1.0}), profile(DATA | {"data": 0.0}), profile(None)
    )
    assert found["data"] == pytest.approx(1.0 / 1.5) and found["data_low"] < found["data"] < found["data_high"]
    assert (found["name"], found["repeats"], found["runs"]) == ("slow", 3, ("run-0", "run-1", "run-2"))
    assert found["step"] == pytest.approx(1.5) and "communication" not in found
    assert (found["verdict"], found["agreeing"], found["judged"]) == (Bound.INPUT, 3, 3)
    assert found["at_most_first"] == pytest.approx(3.0)
    assert found["at_most_first_low"] < 3.0 < found["at_most_first_high"]
    assert zero["data"] == 0 and math.isnan(zero["data_low"])
    (mixed,) = rows(profile(DATA, {"data": 0.001, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}, DATA))
    assert (mixed["verdict"], mixed["agreeing"], mixed["judged"]) == (Bound.INPUT, 2, 3)
    assert mixed["at_most_first"] == pytest.approx(2.0), "repeats of another verdict promise something else"


def test_gains_are_within_repeats_next_to_the_promise_of_the_advice() -> None:
    def side(word: str, *throughputs: float) -> Profile:
        plain = [(repeat, f"{word}{repeat}", one) for repeat, one in enumerate(throughputs, 1)]
        return profile(DATA, plain=pd.DataFrame(plain, columns=["repeat", "run_id", "throughput"]))

    # The machine is three times as slow in the second repeat, and the change gives a factor of two in each.
    found = {
        "items": side("a", 100, 33, 104, 97),
        "batches": side("b", 202, 66, 207, 195),
        "noise": side("c", 210, 20, 315),
        "other": side("e"),
    }
    profiles = pd.DataFrame([{"name": "items", "verdict": Bound.INPUT, "at_most_first": 3.0}])
    tried = [
        ("items", "batches", "first", "x"),
        ("items", "noise", "", "x"),
        ("items", "other", "first", "x"),
        ("items", "gone", "first", "x"),
        ("batches", "items", "first", "y"),
    ]
    gains = tables.gains(profiles, found, tried)
    assert gains.other.tolist() == ["batches", "noise", "items"], "the other was not measured"
    assert gains.verdict.tolist()[::2] == ["faster", "slower"] and gains.verdict[1] not in ("faster", "slower")
    assert gains.gain[0] == pytest.approx(2.0, abs=0.02) and 1.9 < gains.gain_low[0] < 2 < gains.gain_high[0] < 2.1
    assert set(gains.runs[0]) == {"a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"}
    assert gains.before.tolist()[:2] == [Bound.INPUT] * 2 and gains.before.isna()[2]
    assert gains.at_most[0] == 3.0 and gains.at_most[1:].isna().all()


def test_the_gain_of_other_peoples_profiles_is_of_the_mean_and_the_median_step() -> None:
    def steps(*lengths: int) -> Profile:
        ends = np.cumsum(lengths) * MS
        marks = [(end - length * MS, end, "step") for end, length in zip(ends.tolist(), lengths, strict=True)]
        return profile(None, timelines=[timeline([(0, MS, COMPUTE)], marks)])

    found = {"a": steps(8, 8, 8), "b": steps(4, 4, 8), "c": steps()}
    (gain,) = tables.gains(pd.DataFrame(), found, [("a", "b", "", ""), ("a", "c", "", "")]).itertuples()
    assert (gain.gain, gain.median_gain) == pytest.approx((24 / 16, 2.0)) and math.isnan(gain.gain_low)
