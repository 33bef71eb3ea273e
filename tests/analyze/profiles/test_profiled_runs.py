"""Which runs are repeats of one profiled configuration, and which are the same without a profiler."""

from __future__ import annotations

import pandas as pd

from hpc_utils.analyze.profiles.profiled_runs import configurations


def asked(run: str, series: str, ranks: int = 1, **parameters: object) -> dict:
    return {"run_id": run, "series": series, "ranks": ranks, "parameters": {"profile": None, "seed": 0} | parameters}


def runs(*studied: dict, also: tuple[str, ...] = ()) -> pd.DataFrame:
    told = [(one["run_id"], one["parameters"]) for one in studied] + [(run, {"profile": "torch"}) for run in also]
    rows = [{"run_id": run, "profile": one["profile"], "repeat": one.get("repeat", 1)} for run, one in told]
    same = {"workload": "cnn", "dataset": "digits", "precision": "fp32", "world_size": 1, "global_batch": 8}
    return pd.DataFrame(rows).assign(**same, throughput=[100.0 + number for number in range(len(rows))])


def test_repeats_belong_together_and_to_their_plain_runs() -> None:
    studied = [
        asked("a1", "slow", profile="torch", profile_steps=2, seed=0, repeat=1),
        asked("a2", "slow", profile="torch", profile_steps=2, seed=1, repeat=2),
        asked("b1", "slow-plain", seed=0, repeat=1),
        asked("b2", "slow-plain", seed=1, repeat=2),
        asked("c1", "other-plain", seed=0, loader="host"),
    ]
    (one,) = configurations(runs(*studied), studied)
    assert (one.name, one.runs) == ("slow", ("a1", "a2"))
    assert dict(one.plain) == {1: ("b1", 102.0), 2: ("b2", 103.0)}, "another loader is another configuration"
    assert one.what == "slow: cnn on digits, fp32, 1 rank, 8 samples a step"


def test_what_varies_inside_a_series_joins_its_name() -> None:
    studied = [
        asked("a", "torch", 1, profile="torch", precision="fp32"),
        asked("b", "torch", 2, profile="torch", precision="fp32"),
        asked("c", "torch", 2, profile="torch", precision="bf16"),
    ]
    assert [one.name for one in configurations(runs(*studied), studied)] == ["torch-1-fp32", "torch-2-fp32", "torch-2-bf16"]  # fmt: skip


def test_a_profiled_run_of_no_study_stands_for_itself() -> None:
    found = configurations(runs(also=("cnn_Digits-1", "cnn-2")), [])
    assert [(one.name, one.runs, dict(one.plain)) for one in found] == [
        ("cnn-digits-1", ("cnn_Digits-1",), {}),
        ("cnn-2", ("cnn-2",), {}),
    ]


def test_runs_that_are_not_in_the_set_are_left_out() -> None:
    studied = [asked("a", "slow", profile="torch"), asked("gone", "slow", profile="torch", repeat=2)]
    (one,) = configurations(runs(studied[0]), studied)
    assert one.runs == ("a",)
