"""The ceiling of strong scaling, from compute profiles by hand whose ceilings are known: T(B) = FIXED + B seconds."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable

import numpy as np
import pytest

from hpc_utils import paths
from hpc_utils.analyze import ceiling, scaling, stats
from hpc_utils.config import RunConfig
from hpc_utils.records import probes
from hpc_utils.records.compute_profile import computed, step_seconds
from hpc_utils.records.study import Targets

from .runs import REPEATS, study

FIXED = 100.0
BATCHES = [2**power for power in range(3, 13)]  # 8 to 4096


def times(batches: Iterable[int] = BATCHES, repeats: Iterable[float] = REPEATS) -> dict[int, list[float]]:
    return {batch: [(FIXED + batch) * factor for factor in repeats] for batch in batches}


def profile(batches: Iterable[int] = BATCHES, device: str = "cuda", **changes: object) -> dict:
    options = {"workload": "cnn", "precision": "fp32"} | changes
    steps = [{"batch": batch, "step": seconds} for batch, seconds in times(batches).items()]
    machine = {"device": device, "hardware_id": "h", "threads_per_rank": 1}
    machine["device_name"] = "NVIDIA H200" if device == "cuda" else "X"
    return computed(RunConfig(**options)) | machine | {"name": "p", "ready": [], "batches": steps}


def points(batch: int = 512, worlds: Iterable[int] = (1, 2, 8), **other: object) -> list[dict]:
    """As of `launch.study.forecast`."""
    same = {
        "workload": "cnn", "dataset": "digits", "precision": "fp32", "settings": "epochs=2", "device": "cuda", "device_name": "h200",
        "hardware_id": "site-gpu", "threads_per_rank": 1, "global_batch": batch,
    }  # fmt: skip
    same |= {"cores_per_rank": 0.0}
    return [same | {"world_size": world} | other for world in worlds]


def lines(plan: list[dict], *profiles: dict, **targets: object) -> list[tuple[str, bool]]:
    return list(ceiling.planned(plan, profiles, Targets(**targets)))


def test_the_ceiling_is_the_step_of_all_over_that_of_a_part_with_the_ratio_s_interval() -> None:
    most = ceiling.efficiency(times(), 512, 8)
    assert most.value == pytest.approx(612 / (8 * 164))
    assert most == pytest.approx(stats.ratio(times()[512], times()[64]).times(1 / 8))
    assert most.low < most.value < most.high and most.repeats == 3
    single = ceiling.efficiency(times(repeats=[1.0]), 512, 8)
    assert single.value == pytest.approx(most.value) and math.isnan(single.low)


def test_a_batch_between_two_measured_ones_is_on_the_line_of_logs_in_each_repeat() -> None:
    rooted = {batch: [factor * batch**0.5 for factor in REPEATS] for batch in (16, 256)}
    assert ceiling.step(rooted, 100) == pytest.approx(10 * np.array(REPEATS))
    assert ceiling.efficiency(rooted, 200, 4).value == pytest.approx(0.5)


@pytest.mark.parametrize(("batch", "ranks", "why"), [(512, 128, "below 8"), (8192, 2, "above 4096")])
def test_nothing_is_said_beyond_the_measured_batches(batch: int, ranks: int, why: str) -> None:
    with pytest.raises(ceiling.NotMeasured, match=f"not measured {why}"):
        ceiling.efficiency(times(), batch, ranks)


@pytest.mark.parametrize("target", [0.5, 0.7])
def test_the_smallest_batch_is_where_the_ceiling_reaches_the_target(target: float) -> None:
    least = ceiling.smallest_batch(times(), 8, target)
    assert least.value == pytest.approx(FIXED * (8 * target - 1) / (8 * (1 - target)), rel=0.1)
    assert least.low < least.value < least.high and least.repeats == 3
    assert ceiling.efficiency(times(), 8 * least.value, 8).value >= target
    assert math.isnan(ceiling.smallest_batch(times(repeats=[1.0]), 8, target).low)


def test_a_target_that_no_measured_batch_reaches_has_no_smallest() -> None:
    assert ceiling.smallest_batch(times(), 8, 0.95)[:3] == (math.inf,) * 3
    with pytest.raises(ceiling.NotMeasured):
        ceiling.smallest_batch(times([64, 128]), 8, 0.7)  # 8 x 64 was not measured


def test_a_plan_states_the_ceiling_and_the_batch_that_the_target_needs() -> None:
    """... for a GPU by its name, from a profile of any machine."""
    ((line, in_reach),) = lines(points(), profile())
    assert not in_reach
    assert line.startswith(
        "cnn on digits, fp32 (compute profile p): 512 samples on 8 H200: efficiency at most 47% [4"
    )
    least = ceiling.smallest_batch(times(), 8, 0.7).value
    assert f"; 70% needs at least {least:.0f} [" in line and line.endswith("] samples a device")
    ((_, in_reach),) = lines(points(), profile(), strong_efficiency=0.95)
    assert not in_reach
    ((met, in_reach),) = lines(points(), profile(), strong_efficiency=0.4)
    assert in_reach and "needs" not in met
    ((small, in_reach),) = lines(points(batch=32), profile())
    assert in_reach and small.endswith("on 8 H200: not measured below 8 samples")
    reach = ceiling.efficiency(times(), 512, 8)
    ((line, in_reach),) = lines(points(), profile(), strong_efficiency=(reach.value + reach.high) / 2)
    assert in_reach and "needs at least" in line, "a target within the interval is in reach"


@pytest.mark.parametrize(
    "other",
    [
        {"settings": "step_graph=true"}, {"settings": 'loader="device", lr=0.2'}, {"precision": "bf16"}, {"workload": "resnet18"},
        {"device_name": "h20"}, {"device": "cpu", "device_name": ""}, {"worlds": (8,)},
    ],
    ids=str,
)  # fmt: skip
def test_other_steps_or_devices_or_a_single_rank_count_have_no_ceiling(other: dict) -> None:
    assert not lines(points(**other), profile())


def test_a_profile_is_matched_by_its_options_and_cores_by_their_machine_and_number() -> None:
    fast = {"step_graph": True, "fused_optimizer": True, "loader": "device"}
    plan = points(settings='fused_optimizer=true, loader="device", step_graph=true')
    ((line, _),) = lines(plan, profile(), profile(**fast) | {"name": "fast"})
    assert "(compute profile fast)" in line
    cores = {"device": "cpu", "device_name": "", "hardware_id": "rehearsal-cpu-h"}
    assert len(lines(points(**cores), profile(device="cpu"))) == 1
    assert not lines(points(**cores | {"hardware_id": "elsewhere"}), profile(device="cpu"))
    assert not lines(points(**cores, threads_per_rank=0.14), profile(device="cpu"))


def test_losses_are_split_by_the_ceiling_and_add_up() -> None:
    curves = scaling.efficiency(study(strong={"1x2": 0.7, "2x4": 0.4}, weak={"1x2": 0.9}, settings="defaults"))
    found = ceiling.losses(curves, [profile(precision="bf16", device="cpu"), profile([96, 384, 768], device="cpu")])
    assert found.world_size.tolist() == [2, 8] and set(found.baseline) == {"none"}
    assert found.ceiling.tolist() == pytest.approx([868 / (2 * 484), 868 / (8 * 196)])
    assert (found.small_batches + found.communication + found.efficiency).tolist() == pytest.approx([1, 1])
    assert found.small_batches_low.tolist() == pytest.approx((1 - found.ceiling_high).tolist())
    assert found.communication.between(found.communication_low, found.communication_high, inclusive="neither").all()
    assert all(found.runs.map(len) == 3) and set(found.missing) == {""} and set(found.profile) == {"p"}
    narrow = ceiling.losses(curves, [profile([384, 768], device="cpu")])
    assert narrow.missing.tolist() == ["", "not measured below 384"]


def test_without_a_fitting_profile_the_command_that_measures_it_is_named() -> None:
    runs = study(strong={"1x2": 0.7, "2x4": 0.4}, settings='lr=0.2, optimizer="adamw"', threads_per_rank=0.14)
    curves = scaling.efficiency(runs)
    missing = ceiling.losses(curves, [profile(device="cpu")])
    assert missing.empty and {"ceiling", "small_batches", "communication", "missing"} <= set(missing)
    options = "-p workload=cnn -p optimizer=adamw -p device=cpu -p cores_per_rank=0.14"
    assert ceiling.command(curves) == f"`hpc bench compute {options} --batches 96,384,768`"
    assert "hpc bench" not in ceiling.command(curves.iloc[:0])
    assert ceiling.planned_command(points()) == "`hpc bench compute -p workload=cnn --batches 64,256,512`"
    assert not ceiling.planned_command(points(worlds=(8,)))
    own = curves.assign(workload="mine:net", settings='workload_args={"width": 64}, compile="default"')
    words = shlex.split(ceiling.command(own).strip("`"))
    assert "compile=default" in words and 'workload_args={"width": 64}' in words


def test_one_h200_tells_how_512_images_scale_to_eight() -> None:
    found = {
        (one["step_graph"], one["compile"]): step_seconds(one)
        for one in probes.read_probes("compute", paths.reference() / "h200")
    }
    most = {step: ceiling.efficiency(times, 512, 8).value for step, times in found.items()}
    expected = {
        (False, "off"): 0.140,
        (True, "off"): 0.487,
        (True, "default"): 0.445,
    }  # the last has the fastest T(1)
    assert most == pytest.approx(expected, abs=1e-3)
    assert ceiling.smallest_batch(found[True, "off"], 4, 0.7).value == 118
