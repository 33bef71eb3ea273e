"""Named values of profiles: what the analysis says, under names that stay, with their evidence."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hpc_utils.analyze.named import profiles
from hpc_utils.analyze.profiles import thresholds
from hpc_utils.analyze.profiles.judge import judge
from hpc_utils.analyze.profiles.readers import Reports
from hpc_utils.analyze.profiles.thresholds import Bound
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, Timeline
from hpc_utils.analyze.profiles.verdict import Verdict
from tests.analyze.profiles.timelines import MS, timeline

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


def told(timelines: list[Timeline], name: str = "mine", **more: object) -> dict:
    found = judge(timelines)
    values = profiles.of_devices(name, timelines, found, what="two ranks", **more)
    assert len({value.name for value in values}) == len(values)
    return {value.name.removeprefix(f"profile.{name}."): value for value in values}


def test_devices_tell_shares_whom_they_wait_for_and_the_verdict() -> None:
    values = told([rank(0, late=0), rank(1, late=1)], files=("profile:a.json", "profile:b.json"))
    # Rank 0 spans 59 ms and communicates 18, rank 1 58 and 12: the late rank's 2 ms a step are the wire's.
    assert values["exposed-communication"].value == pytest.approx(30 / 117)
    assert values["exposed-wire"].value == pytest.approx(24 / 117)
    assert values["exposed-waiting"].value == pytest.approx(6 / 117)
    assert values["busy"].value + values["idle"].value == pytest.approx(1)
    assert values["exposed-communication.highest"].value == pytest.approx(18 / 59)
    assert values["straggler"].value == "rank 1, GPU 1" and values["straggler.last"].value == 6
    assert values["straggler.behind"].value == pytest.approx(1e-3)
    assert (values["ranks"].value, values["world"].value, values["steps"].value) == (2, 2, 6)
    assert values["step"].value == pytest.approx(0.010) and values["step"].unit == "s"
    assert values["verdict"].value in list(Bound)
    assert all(value.files == ("profile:a.json", "profile:b.json") for value in values.values())
    assert all(value.says.endswith("; of two ranks.") for value in values.values())
    assert values["busy"].repeats == 1 and not values["busy"].has_interval, "one profile is one measurement"


def test_what_is_not_known_has_no_value() -> None:
    values = told([timeline([(0, MS, COMPUTE), (2 * MS, 3 * MS, COMPUTE)])])
    assert "loader-wait" not in values and "exposed-wire" not in values and "step" not in values
    assert "straggler" not in values and "busy.lowest" not in values


def phased(*shares: dict[str, float]) -> dict[str, tuple[Reports, Verdict]]:
    return {
        f"run-{number}": (Reports([], phases=one), judge([], phase_seconds=one)) for number, one in enumerate(shares)
    }


DATA = {"data": 0.5, "forward": 0.2, "backward": 0.2, "optimizer": 0.1}


def test_phases_are_medians_over_repeats_with_their_runs() -> None:
    runs = phased(DATA, DATA | {"data": 1.5}, DATA | {"data": 1.0})
    values = {one.name: one for one in profiles.of_configuration("slow", runs, what="slow: x", results=Path())}
    data = values["profile.slow.data"]
    assert data.value == pytest.approx(1.0 / 1.5) and data.low < data.value < data.high
    assert data.repeats == 3 and data.runs == ("run-0", "run-1", "run-2")
    assert values["profile.slow.step"].value == pytest.approx(1.5)
    assert values["profile.slow.verdict"].value == Bound.INPUT
    assert values["profile.slow.agreeing"].value == 3
    assert values["profile.slow.gain-at-most"].value == pytest.approx(3.0)
    assert "profile.slow.communication" not in values


def test_repeats_that_disagree_are_counted() -> None:
    computing = {"data": 0.001, "forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    values = {
        one.name: one
        for one in profiles.of_configuration("x", phased(DATA, computing, DATA), what="x", results=Path())
    }
    assert values["profile.x.verdict"].value == Bound.INPUT
    assert (values["profile.x.agreeing"].value, values["profile.x.judged"].value) == (2, 3)
    assert values["profile.x.gain-at-most"].repeats == 2, "what a repeat of another verdict promises is another thing"


def test_a_phase_of_no_time_has_no_interval() -> None:
    still = DATA | {"data": 0.0}
    values = {one.name: one for one in profiles.of_phases("x", {"a": (still, judge([], phase_seconds=still))} , what="x")}  # fmt: skip
    assert values["profile.x.data"].value == 0 and math.isnan(values["profile.x.data"].low)


def test_own_devices_are_told_by_their_profile_in_the_set(tmp_path: Path) -> None:
    lines = [
        replace(one, source=str(tmp_path / f"runs/a/profile/rank{number}.trace.json.gz"))
        for number, one in enumerate([rank(0, 0), rank(1, 2)])
    ]
    found = {"a": (Reports(lines), judge(lines))}
    values = profiles.of_configuration("gpu", found, what="x", results=tmp_path)
    assert values[0].runs == ("a",)
    assert values[0].files == ("runs/a/profile/rank0.trace.json.gz", "runs/a/profile/rank1.trace.json.gz")


def side(word: str, *throughputs: float) -> dict[int, tuple[str, float]]:
    return {repeat: (f"{word}{repeat}", one) for repeat, one in enumerate(throughputs, 1)}


def gained(before: dict, after: dict) -> list:
    return profiles.measured_gain("items", "batches", before, after, change="with whole batches", what="items")


def test_a_measured_gain_is_told_within_repeats_with_its_runs() -> None:
    # The machine is three times as slow in the second repeat, and the change gives a factor of two in each.
    before, after = side("a", 100, 33, 104, 97), side("b", 202, 66, 207, 195)
    gain, words = gained(before, after)
    assert gain.name == "profile.items.gain.batches" and gain.value == pytest.approx(2.0, abs=0.02)
    assert 1.9 < gain.low < 2 < gain.high < 2.1 and gain.repeats == 4
    assert gain.runs == ("a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4")
    assert (words.name, words.value) == ("profile.items.gain.batches.told", "faster")
    assert gained(after, before)[1].value == "slower"


def test_what_repeats_do_not_tell_is_said() -> None:
    before = side("a", 100, 100, 100)
    assert gained(before, side("b", 210))[1].value == "not told from no change", "a single repeat of both"
    assert gained(before, side("b", 210, 60, 150))[1].value == "not told from no change"
    assert gained(before, {4: ("b4", 210.0)}) == []


def test_a_watched_gain_is_told_by_the_mean_and_the_median_step() -> None:
    def steps(*seconds: int) -> Timeline:
        ends = [sum(seconds[: place + 1]) * MS for place in range(len(seconds))]
        marks = [
            (end - length * MS, end, f"step {n}") for n, (end, length) in enumerate(zip(ends, seconds, strict=True))
        ]
        return timeline([(0, MS, COMPUTE)], marks)

    more = {"change": "with workers", "what": "x", "files": ("profile:a",)}
    mean, middle = profiles.watched_gain("before", "after", [steps(8, 8, 8)], [steps(4, 4, 8)], **more)
    assert mean.value == pytest.approx(24 / 16) and middle.value == pytest.approx(2.0)
    assert middle.name == "profile.before.gain.after.median"
    assert profiles.watched_gain("before", "after", [timeline([(0, MS, COMPUTE)])], [steps(4)], **more) == []


def test_thresholds_are_those_of_the_verdict() -> None:
    values = {one.name: one.value for one in profiles.thresholds()}
    assert values["profile.threshold.busy"] == thresholds.UTILISATION
    assert values["profile.threshold.exposed-waiting"] == thresholds.WAITING
