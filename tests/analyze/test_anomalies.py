"""What is flagged, with which cause, and that sound runs are left alone."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils.analyze.anomalies import COLUMNS, counts, find

from .runs import MIB, run, study

SOUND = {"1x2": 0.98, "1x4": 0.93, "1x8": 0.85, "2x4": 0.8, "1x12": 0.75}


def flagged(runs: pd.DataFrame, finding: str) -> list[dict]:
    found = find(runs)
    return found[found.finding == finding].to_dict("records")


def at(runs: pd.DataFrame, world: int, parallel: str | None = None) -> pd.Series:
    return (runs.world_size == world) & ((runs.parallel == parallel) | (parallel is None))


def slow(runs: pd.DataFrame, which: pd.Series, factor: float) -> pd.DataFrame:
    runs.loc[which, "seconds"] *= factor
    runs["throughput"] = runs.samples / runs.seconds
    return runs


def test_sound_runs_have_no_findings() -> None:
    found = find(study(strong=SOUND, weak=SOUND))
    assert found.empty and found.columns.tolist() == COLUMNS
    assert find(study(strong=SOUND).iloc[:0]).empty and counts(found).empty


def test_a_super_linear_point_is_flagged_and_a_doubtful_one_is_not() -> None:
    (found,) = flagged(study(strong={"1x2": 1.15, "1x4": 1.005}), "super-linear")
    assert (found["layout"], found["kind"], found["batch"], found["baseline"]) == ("1x2", "strong", 768, "none")
    assert found["value"] == pytest.approx(1.15) and 1 < found["low"] < 1.15 < found["high"]
    assert found["likely"] == "a smaller batch a device fits the caches better"
    assert found["evidence"] == "384 samples a device instead of 768" and "at most 100 %" in found["expected"]
    (found,) = flagged(study(weak={"1x2": 1.15}), "super-linear")
    assert found["likely"] == "the records show no cause"


@pytest.mark.parametrize(
    ("change", "cause", "evidence"),
    [
        ({"page_faults": 5000.0}, "page faults", "5,000 pages a step, 10 on 2 ranks"),
        ({"peak_rss_bytes": 800 * MIB}, "more memory", "800 MiB at its peak, 400 MiB on 2 ranks"),
        ({"host": "n7"}, "other nodes", "on n7, the other on n1"),
        ({"pinned": False}, "not both were pinned", "`pinned` is false in the baseline, true here"),
    ],
)
def test_the_cause_is_taken_from_what_the_baseline_recorded(change: dict, cause: str, evidence: str) -> None:
    runs = study(weak={"1x2": 1.15})
    for name, value in change.items():
        runs.loc[at(runs, 1, "none"), name] = value
    (found,) = flagged(runs, "super-linear")
    assert cause in found["likely"] and evidence in found["evidence"]


def test_a_baseline_slower_than_ddp_on_one_rank_is_the_first_suspect() -> None:
    runs = slow(study(weak={"1x2": 0.98}), slice(None), 1.0)
    (found,) = flagged(slow(runs, at(runs, 1, "none"), 1.3), "super-linear")
    assert found["likely"].startswith("the baseline itself is slow") and "DDP on one rank 816 ms" in found["evidence"]


def test_throughput_that_falls_is_flagged_with_what_changed() -> None:
    (found,) = flagged(study(strong={"1x2": 0.9, "1x4": 0.3}), "throughput falls")
    assert found["layout"] == "1x4" and found["value"] == pytest.approx(2 / 3)
    assert found["low"] < found["value"] < found["high"] < 1
    assert "192 samples a device instead of 384" in found["likely"]
    (found,) = flagged(study(weak={"1x4": 0.9, "2x4": 0.3}), "throughput falls")
    assert "1x4 became 2x4" in found["likely"]
    # A slower layout of the same rank count is no fall.
    assert not flagged(study(strong={"1x2": 0.9, "1x4": 0.85, "4x1": 0.2, "1x8": 0.8}), "throughput falls")


def test_efficiency_that_rises_again_is_flagged_with_its_cause() -> None:
    runs = study(weak={"1x2": 0.95, "1x4": 0.6, "1x8": 0.9})
    (found,) = flagged(runs, "efficiency rises")
    assert (found["layout"], found["likely"]) == ("1x8", "the records show no cause")
    assert "60% of 4 ranks (1x4)" in found["expected"]
    runs.loc[at(runs, 4), "host"] = "n9"
    assert "ran on other nodes" in flagged(runs, "efficiency rises")[0]["likely"]
    runs = study(weak={"4x1": 0.6, "1x8": 0.9})
    assert "cross the link between nodes" in flagged(runs, "efficiency rises")[0]["likely"]
    within = study(weak={"1x4": 0.85, "1x8": 0.855})
    assert not flagged(within, "efficiency rises")


def test_single_runs_are_flagged_only_beyond_what_repeats_spread() -> None:
    runs = study(weak={"1x4": 0.85, "1x8": 0.9, "1x12": 0.3})
    found = find(runs[runs.repeat == 1])
    assert set(found.finding) == {"throughput falls", "few repeats"}
    assert dict(counts(found).itertuples(index=False)) == found.finding.value_counts().to_dict()


def test_repeats_that_spread_are_named() -> None:
    runs = study(strong={"1x2": 0.9})
    runs = slow(runs, at(runs, 2) & (runs.repeat == 1), 1.2)
    (found,) = flagged(runs, "repeats spread")
    assert found["layout"] == "1x2" and found["value"] > 0.1 and "the first repeat" in found["likely"]
    assert runs[at(runs, 2)].run_id.iloc[0] in found["evidence"]
    runs.loc[at(runs, 2) & (runs.repeat == 1), "host"] = "n2"
    assert "nodes that are not alike" in flagged(runs, "repeats spread")[0]["likely"]


def test_what_is_no_clean_measurement_is_named() -> None:
    runs = study(strong={"1x2": 0.9})
    runs.loc[at(runs, 2) & (runs.repeat == 2), "restarts"] = 3
    barred = pd.DataFrame([run(4, 3.0, batch=768, oversubscribed=True, run_id=f"crowd{n}") for n in range(8)])
    found = find(pd.concat([runs, barred], ignore_index=True)).set_index("finding")
    assert found.loc["restarted", "evidence"] == runs[at(runs, 2)].run_id.iloc[1]
    assert (found.loc["oversubscribed", "value"], found.loc["oversubscribed", "world_size"]) == (8, 4)
    assert found.loc["oversubscribed", "evidence"].endswith("crowd5 and 2 more")
    assert "few repeats" not in found.index
    few = flagged(runs[~(at(runs, 2) & (runs.repeat == 3))], "few repeats")
    assert [(row["value"], row["evidence"]) for row in few] == [(1, "ddp 1x2, batch 768: 2")]
