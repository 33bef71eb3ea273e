"""Profiles as rows of a table: what the analysis says of devices, of phases, and of what a change gave."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from hpc_utils.analyze.profiles import tables, thresholds
from hpc_utils.analyze.profiles.judge import judge, judge_reports
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


def row(timelines: list[Timeline]) -> dict[str, Any]:
    return tables.of_devices(timelines, judge(timelines))


def test_devices_have_shares_the_straggler_and_the_verdict() -> None:
    found = row([rank(0, late=0), rank(1, late=1)])
    # Rank 0 spans 59 ms and communicates 18, rank 1 58 and 12: the late rank's 2 ms a step are the wire's.
    assert found["exposed"] == pytest.approx(30 / 117)
    assert (found["wire"], found["waiting"]) == pytest.approx((24 / 117, 6 / 117))
    assert found["busy"] + found["idle"] == pytest.approx(1)
    assert (found["straggler"], found["last"], found["turns"]) == ("rank 1, GPU 1", 6, 6)
    assert (found["behind"], found["step"], found["span"]) == pytest.approx((1e-3, 0.010, 0.059))
    assert (found["ranks"], found["world"], found["steps"]) == (2, 2, 6)
    assert found["verdict"] in set(Bound) and found["agreeing"] == found["judged"] == 1
    assert "low" not in found and "repeats" not in found, "one profile is one measurement"


def test_what_is_not_known_is_absent() -> None:
    found = row([timeline([(0, MS, COMPUTE), (2 * MS, 3 * MS, COMPUTE)])])
    assert not {"loader", "wire", "step", "straggler", "bus_bandwidth"} & set(found)


def profile(*phases: dict[str, float], timelines: list[Timeline] | None = None, **more: Any) -> Profile:
    reports = {f"run-{number}": Reports(timelines or [], phases=one) for number, one in enumerate(phases)}
    verdicts = {run: judge_reports(one) for run, one in reports.items()}
    return Profile("slow", "x", reports, verdicts, **more)


DATA = {"data": 0.5, "forward": 0.2, "backward": 0.2, "optimizer": 0.1}


def test_phases_are_medians_over_repeats_with_their_runs() -> None:
    (found,) = tables.profiles([profile(DATA, DATA | {"data": 1.5}, DATA | {"data": 1.0})]).to_dict("records")
    assert found["data"] == pytest.approx(1.0 / 1.5) and found["data_low"] < found["data"] < found["data_high"]
    assert (found["name"], found["repeats"], found["runs"]) == ("slow", 3, ("run-0", "run-1", "run-2"))
    assert found["step"] == pytest.approx(1.5) and "communication" not in found
    assert (found["verdict"], found["agreeing"], found["judged"]) == (Bound.INPUT, 3, 3)
    assert found["at_most_first"] == pytest.approx(3.0)
    assert found["at_most_first_low"] < 3.0 < found["at_most_first_high"]


def test_repeats_that_disagree_are_counted() -> None:
    computing = {"data": 0.001, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    (found,) = tables.profiles([profile(DATA, computing, DATA)]).to_dict("records")
    assert (found["verdict"], found["agreeing"], found["judged"]) == (Bound.INPUT, 2, 3)
    assert found["at_most_first"] == pytest.approx(2.0), "repeats of another verdict promise something else"


def test_a_phase_of_no_time_has_no_interval() -> None:
    (found,) = tables.profiles([profile(DATA | {"data": 0.0})]).to_dict("records")
    assert found["data"] == 0 and math.isnan(found["data_low"])


def test_recorded_devices_go_before_phases_and_a_profile_without_either_is_left_out() -> None:
    (found,) = tables.profiles([profile(DATA, DATA, timelines=[rank(0, 0), rank(1, 2)])]).to_dict("records")
    assert found["runs"] == ("run-0",) and "busy" in found and "data" not in found
    assert tables.profiles([profile(None)]).empty


def side(word: str, *throughputs: float) -> dict[int, tuple[str, float]]:
    return {repeat: (f"{word}{repeat}", one) for repeat, one in enumerate(throughputs, 1)}


def test_a_measured_gain_is_within_repeats_with_its_runs() -> None:
    # The machine is three times as slow in the second repeat, and the change gives a factor of two in each.
    before, after = side("a", 100, 33, 104, 97), side("b", 202, 66, 207, 195)
    found = tables.measured_gain(before, after)
    assert found["gain"] == pytest.approx(2.0, abs=0.02) and found["verdict"] == "faster"
    assert 1.9 < found["low"] < 2 < found["high"] < 2.1 and found["repeats"] == 4
    assert found["runs"] == ("a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4")
    assert tables.measured_gain(after, before)["verdict"] == "slower"


def test_what_repeats_do_not_tell_is_no_gain() -> None:
    before = side("a", 100, 100, 100)
    for after in (side("b", 210), side("b", 210, 60, 150)):  # a single repeat of both; repeats that contradict
        assert tables.measured_gain(before, after)["verdict"] not in ("faster", "slower")
    assert tables.measured_gain(before, {4: ("b4", 210.0)}) == {}


def test_a_profiled_gain_is_of_the_mean_and_the_median_step() -> None:
    def steps(*seconds: int) -> Timeline:
        ends = [sum(seconds[: place + 1]) * MS for place in range(len(seconds))]
        marks = [
            (end - length * MS, end, f"step {n}") for n, (end, length) in enumerate(zip(ends, seconds, strict=True))
        ]
        return timeline([(0, MS, COMPUTE)], marks)

    found = tables.profiled_gain([steps(8, 8, 8)], [steps(4, 4, 8)])
    assert (found["gain"], found["median_gain"]) == pytest.approx((24 / 16, 2.0))
    assert tables.profiled_gain([timeline([(0, MS, COMPUTE)])], [steps(4)]) == {}


def test_gains_are_next_to_the_promise_of_the_advice() -> None:
    found = {
        "items": profile(DATA, plain=side("a", 100, 100, 100)),
        "batches": profile(DATA, plain=side("b", 210, 205, 207)),
        "other": profile(DATA, plain={}),
    }
    profiles = pd.DataFrame([{"name": "items", "verdict": Bound.INPUT, "at_most_first": 3.0}])
    tried = [
        ("items", "batches", "first", "x"),
        ("items", "batches", "", "y"),
        ("items", "other", "first", "not measured without a profiler"),
        ("items", "gone", "first", "not profiled"),
        ("batches", "items", "first", "z"),
    ]
    gains = tables.gains(profiles, found, tried)
    assert gains.change.tolist() == ["x", "y", "z"] and gains.verdict.tolist() == ["faster", "faster", "slower"]
    assert gains.before.tolist()[:2] == [Bound.INPUT] * 2 and gains.before.isna()[2]
    assert gains.at_most[0] == 3.0 and gains.at_most[1:].isna().all()
    assert tables.gains(profiles, found, []).empty


def test_the_gain_of_other_peoples_profiles_is_that_of_their_steps() -> None:
    def steps(length: int) -> Profile:
        marks = [(n * length * MS, (n + 1) * length * MS, f"step {n}") for n in range(3)]
        return profile(None, timelines=[timeline([(0, MS, COMPUTE)], marks)])

    (gain,) = tables.gains(pd.DataFrame(), {"a": steps(8), "b": steps(4)}, [("a", "b", "first", "x")]).itertuples()
    assert (gain.gain, gain.median_gain) == pytest.approx((2.0, 2.0)) and math.isnan(gain.low)


def test_a_verdict_in_words_has_its_first_advice() -> None:
    (found,) = tables.verdicts([profile(DATA)]).to_dict("records")
    assert (found["profile"], found["verdict"]) == ("slow", Bound.INPUT)
    assert found["try_first"] and found["gain_at_most"]


def test_thresholds_are_those_of_the_verdict() -> None:
    (found,) = tables.thresholds().to_dict("records")
    assert (found["busy"], found["waiting"]) == (thresholds.UTILISATION, thresholds.WAITING)
