"""What is flagged, with which cause, and that sound runs are left alone."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils.analyze.anomalies import COLUMNS, UNKNOWN, counts, find_anomalies

from .runs import MIB, run, study

SOUND = {"1x2": 0.98, "1x4": 0.93, "1x8": 0.85, "2x4": 0.8, "1x12": 0.75}


def flagged(runs: pd.DataFrame, finding: str) -> list[dict]:
    found = find_anomalies(runs)
    return found[found.finding == finding].to_dict("records")


def at(runs: pd.DataFrame, world: int, parallel: str | None = None) -> pd.Series:
    return (runs.world_size == world) & ((runs.parallel == parallel) | (parallel is None))


def slow(runs: pd.DataFrame, which: pd.Series, factor: float) -> pd.DataFrame:
    runs.loc[which, "seconds"] *= factor
    runs["throughput"] = runs.samples / runs.seconds
    return runs


def test_sound_runs_have_no_findings() -> None:
    found = find_anomalies(study(strong=SOUND, weak=SOUND))
    assert found.empty and found.columns.tolist() == COLUMNS
    assert find_anomalies(study(strong=SOUND).iloc[:0]).empty and counts(found).empty


def test_a_super_linear_point_is_flagged_and_a_doubtful_one_is_not() -> None:
    (found,) = flagged(study(strong={"1x2": 1.15, "1x4": 1.005}), "super-linear")
    assert (found["layout"], found["kind"], found["batch"], found["baseline"]) == ("1x2", "strong", 768, "none")
    assert found["value"] == pytest.approx(1.15) and 1 < found["value_low"] < 1.15 < found["value_high"]
    assert "a smaller batch" in found["likely"] and "768, the other 384" in found["evidence"]
    (found,) = flagged(study(weak={"1x2": 1.15}), "super-linear")
    assert found["likely"] == UNKNOWN


@pytest.mark.parametrize(
    ("change", "cause", "evidence"),
    [
        ({"page_faults": 5000.0}, "page faults", "5,000 pages a step, the other 10"),
        ({"peak_rss_bytes": 800 * MIB}, "more memory", "800 MiB, the other 400"),
        ({"host": "n7"}, "other nodes", "on n7, the other on n1"),
        ({"pinned": False}, "cores", "pinned False, the other True"),
        ({"outside_seconds": 4.0, "steal_seconds": 0.0}, "other processes", "51% outside load, the other 0%"),
    ],
)
def test_the_cause_is_taken_from_what_the_baseline_recorded(change: dict, cause: str, evidence: str) -> None:
    runs = study(weak={"1x2": 1.15})
    for name, value in change.items():
        runs.loc[at(runs, 1, "none"), name] = value
    (found,) = flagged(runs, "super-linear")
    assert cause in found["likely"] and found["evidence"] == evidence


def test_throughput_that_falls_is_flagged() -> None:
    (found,) = flagged(study(strong={"1x2": 0.9, "1x4": 0.3}), "throughput falls")
    assert found["layout"] == "1x4" and found["value"] == pytest.approx(2 / 3)
    assert found["value_low"] < found["value"] < found["value_high"] < 1 and "between nodes" not in found["likely"]
    (found,) = flagged(study(strong={"1x2": 0.9, "2x2": 0.3}), "throughput falls")
    assert found["likely"].startswith("the link between nodes")
    # A slower layout of the same rank count is no fall.
    assert not flagged(study(strong={"1x2": 0.9, "1x4": 0.85, "4x1": 0.2, "1x8": 0.8}), "throughput falls")


def test_efficiency_that_rises_again_is_flagged_with_its_cause() -> None:
    runs = study(weak={"1x2": 0.95, "1x4": 0.6, "1x8": 0.9})
    (found,) = flagged(runs, "efficiency rises")
    assert (found["layout"], found["likely"]) == ("1x8", UNKNOWN)
    assert found["evidence"] == "60% on 4 ranks (1x4) then 90% on 8 ranks (1x8)"
    runs.loc[at(runs, 4), "host"] = "n9"
    assert flagged(runs, "efficiency rises")[0]["likely"] == "other nodes"
    runs = study(weak={"4x1": 0.6, "1x8": 0.9})
    assert "crosses the link between nodes" in flagged(runs, "efficiency rises")[0]["likely"]
    assert not flagged(study(weak={"1x4": 0.85, "1x8": 0.855}), "efficiency rises")


def test_single_runs_are_flagged_only_beyond_what_repeats_spread() -> None:
    runs = study(weak={"1x4": 0.85, "1x8": 0.9, "1x12": 0.3})
    found = find_anomalies(runs[runs.repeat == 1])
    assert set(found.finding) == {"throughput falls", "few repeats"}
    assert counts(found).set_index("finding")["count"].to_dict() == found.finding.value_counts().to_dict()


def test_repeats_that_spread_are_named() -> None:
    runs = study(strong={"1x2": 0.9})
    runs = slow(runs, at(runs, 2) & (runs.repeat == 1), 1.2)
    (found,) = flagged(runs, "repeats spread")
    assert found["layout"] == "1x2" and found["value"] > 0.1
    assert runs[at(runs, 2)].run_id.iloc[0] in found["evidence"]


@pytest.mark.parametrize(("factors", "number"), [((1.0, 1.05, 0.96), 0), ((1.0, 1.4, 0.8), 1)])
def test_sessions_of_turns_are_named_only_if_their_ratios_differ_beyond_a_shared_machine_s(
    factors: tuple[float, ...], number: int
) -> None:
    runs = study(strong={"1x2": 0.9})
    for repeat, factor in enumerate(factors, 1):
        runs = slow(runs, at(runs, 2) & (runs.repeat == repeat), factor)
    rounds = [{(f"session {repeat}", turn): 1 + turn % 3 / 100 for turn in range(40)} for repeat in runs.repeat]
    found = flagged(runs.assign(blocks=rounds), "repeats spread")
    assert len(found) == number and all("3 sessions" in row["evidence"] for row in found)


def test_a_run_that_took_turns_without_its_baseline_is_named() -> None:
    runs = study(strong={"1x2": 0.9})
    sessions = runs.repeat.astype(str).mask(at(runs, 2) & (runs.repeat == 2), "resumed")
    blocks = [{(session, turn): 1 + turn % 3 / 100 for turn in range(40)} for session in sessions]
    (found,) = flagged(runs.assign(blocks=blocks), "unpaired repeats")
    assert found["value"] == 1 and found["evidence"] == runs.run_id[sessions == "resumed"].item()


def test_load_from_outside_is_named_with_the_interval_that_it_widened() -> None:
    runs = study(strong={"1x2": 0.9}).assign(outside_seconds=0.01, steal_seconds=0.0)
    assert find_anomalies(runs).empty
    slowed = at(runs, 2) & (runs.repeat == 1)
    runs.loc[slowed, "outside_seconds"] = 1.5
    runs.loc[at(runs, 1, "none"), "steal_seconds"] = 0.8
    found = flagged(runs := slow(runs, slowed, 1.2), "outside load")
    assert counts(find_anomalies(runs)).set_index("finding").outside["outside load"] == max(
        row["value"] for row in found
    )
    assert {row["parallel"]: row["value"] for row in found} == pytest.approx({"none": 0.1, "ddp": 0.28}, abs=0.02)
    assert {row["parallel"]: "interval" in row["evidence"] for row in found} == {"none": False, "ddp": True}


def test_one_rank_faster_with_a_group_than_without_is_flagged() -> None:
    runs = study(strong={"1x2": 0.9}, weak={"1x2": 0.9})
    runs = slow(runs, at(runs, 1, "none") & (runs.global_batch == 768), 1.6).assign(steal_seconds=0.0)
    runs.loc[at(runs, 1, "none"), "outside_seconds"] = 6.0
    (found,) = flagged(runs, "faster with a group")
    assert (found["parallel"], found["global_batch"]) == ("ddp", 768) and "other processes" in found["likely"]
    assert (
        found["value"] == pytest.approx(1.6 / 1.02) and 1 < found["value_low"] < found["value"] < found["value_high"]
    )


def test_what_is_no_clean_measurement_is_named() -> None:
    runs = study(strong={"1x2": 0.9})
    runs.loc[at(runs, 2) & (runs.repeat == 2), "restarts"] = 3
    barred = pd.DataFrame([run(4, 3.0, batch=768, oversubscribed=True, run_id=f"crowd{n}") for n in range(8)])
    found = find_anomalies(pd.concat([runs, barred], ignore_index=True)).set_index("finding")
    assert found.loc["restarted", "evidence"] == runs[at(runs, 2)].run_id.iloc[1]
    assert (found.loc["barred", "value"], found.loc["barred", "world_size"]) == (8, 4)
    few = flagged(runs[~(at(runs, 2) & (runs.repeat == 3))], "few repeats")
    assert [(row["value"], row["evidence"]) for row in few] == [(1, "ddp 1x2, batch 768: 2")]
