"""Tree models by threads, and what a GPU must reach: hand-made runs whose ratios are known."""

from __future__ import annotations

import pandas as pd
import pytest

from companions.trees import analysis as trees
from hpc_utils.launch.cluster import NodeType
from hpc_utils.records import schema
from tests.analyze.runs import repeated

NODE = NodeType(partition="p", cores=8, precisions=["fp32"], price=8.0, unit="EUR")


def measured(*kinds: tuple[str, int, float, str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(runs as of `trees.measure`, epochs) of (library, threads, seconds, device), three repeats each."""
    rows = []
    for library, threads, seconds, device in kinds:
        ids = {
            "workload": f"companions.trees.boosting:{library}",
            "threads_per_rank": threads,
            "device": device,
            "settings": "s",
        }
        rows += repeated(1, seconds, parallel="none", hardware_id=device, **ids)
    runs = pd.DataFrame(rows).assign(run_id=[f"run{number}" for number in range(len(rows))], setup_seconds=0.0)
    blank = dict.fromkeys(schema.names(schema.EPOCHS)) | {"epoch": 1, "eval_seconds": 0.0}
    names = ["run_id", "samples", "seconds"]
    epochs = pd.DataFrame([blank | row for row in runs[names].to_dict("records")])
    library = runs.workload.str.rpartition(":")[2]
    values = {
        "busy_cores": runs.threads_per_rank * 0.9,
        "outside": 0.0,
        "test_auc": 0.8,
        "test_accuracy": 0.7,
        "test_loss": 0.5,
    }
    return runs.assign(library=library, threads=runs.threads_per_rank, cores="0", **values), epochs


CPUS = ("XGBoost", 1, 80.0, "cpu"), ("XGBoost", 4, 25.0, "cpu"), ("LightGBM", 2, 30.0, "cpu")


def test_speed_ups_are_over_one_thread_of_the_same_library() -> None:
    found = trees.by_threads(measured(*CPUS)[0]).set_index(["library", "threads"])
    assert found.speedup["XGBoost"].tolist() == pytest.approx([1, 3.2]) and found.efficiency[
        "XGBoost", 4
    ] == pytest.approx(0.8)
    assert found.efficiency_low["XGBoost", 4] < 0.8 < found.efficiency_high["XGBoost", 4]
    assert found.speedup["LightGBM"].isna().all(), "one thread was not measured"
    assert found.busy_cores["XGBoost", 4] == pytest.approx(3.6) and (found.repeats == 3).all()


def test_a_gpu_is_the_better_buy_where_it_is_faster_by_more_than_it_costs() -> None:
    even = trees.break_even(trees.spent(*measured(*CPUS), {}))
    assert set(even.better) == {"not measured"}
    runs, epochs = measured(*CPUS, ("XGBoost", 1, 5.0, "cuda"))
    costs = trees.spent(runs, epochs, {"cpu": NODE})
    even = trees.break_even(costs)
    own = even[even.library == "XGBoost"].set_index("price_ratio")
    assert own.may_take.tolist() == pytest.approx([25, 12.5, 6.25, 3.125, 1.5625]) and (own.threads == 4).all()
    assert own.better.tolist() == ["GPU", "GPU", "GPU", "CPU", "CPU"]
    assert set(even[even.library == "LightGBM"].better) == {"not measured"}
    paid = costs[costs.device == "cpu"].set_index(["library", "threads"]).cost * 3600
    assert paid["XGBoost", 1] == pytest.approx(80 * 8 / 8) and paid["XGBoost", 4] == pytest.approx(25 * 8 / 2), (
        "its cores' share"
    )


def test_a_set_without_tree_models_has_empty_tables(tmp_path) -> None:
    runs, epochs = measured(*CPUS)
    none = trees.measure(tmp_path, runs.assign(workload="cnn")[schema.names(schema.RUNS)], epochs)
    assert none.empty and trees.by_threads(none).empty and trees.at_work(tmp_path, none).empty
    assert trees.learning(none, epochs).empty and trees.break_even(trees.spent(none, epochs, {})).empty
