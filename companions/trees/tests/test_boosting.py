"""Tree models leave the records of any run, on generated rows and on a table of one's own; what they cannot do is refused."""

from __future__ import annotations

from pathlib import Path
from signal import SIGUSR1

import numpy as np
import pandas as pd
import pytest

from companions.trees.boosting import XGBoost, area
from hpc_utils.config import RunConfig
from hpc_utils.train import Recorder, WorkloadError, train
from hpc_utils.train.ranks import setup

LIBRARIES = ["XGBoost", "LightGBM"]
BRIEF = {"parallel": "none", "device": "cpu", "threads_per_rank": 1, "steps_per_epoch": 4, "epochs": 2}


def trees(library: str, **parameters: object) -> RunConfig:
    return RunConfig(workload=f"companions.trees.boosting:{library}", **BRIEF | parameters)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_round_is_a_step_over_all_rows(results: Path, library: str) -> None:
    tables = train(trees(library, global_batch=4000, evaluate_every=2)).tables()
    epochs, run = tables["epochs"], tables["run"]
    assert (
        epochs.steps.tolist() == [4, 4] and epochs.samples.tolist() == [16_000, 16_000] and len(tables["steps"]) == 8
    )
    assert epochs.test_auc.isna().tolist() == [True, False] and 0.7 < epochs.test_auc.iloc[1] < 0.95
    assert 0.6 < epochs.test_accuracy.iloc[1] < 0.9 and epochs.test_loss.iloc[1] < np.log(2)
    assert run["pinned"] and run["cpu_seconds"] > 0 and run["setup_seconds"] > 0 and run["warmup_seconds"] > 0
    assert (epochs.lr == 0.1).all()
    again = train(trees(library, global_batch=4000, warmup_steps=0)).tables()["epochs"]
    assert again.test_loss.iloc[1] == epochs.test_loss.iloc[1], "a warm-up leaves no trees"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A user's table of 500 rows: numbers, some of them missing, categories and truth values."""
    numbers = np.random.default_rng(0)
    columns = {
        "size": numbers.random(500),
        "kind": numbers.choice(["a", "b"], 500),
        "seen": numbers.random(500) > 0.5,
    }
    rows = pd.DataFrame(columns)
    rows["label"] = np.where(rows.kind == "a", "none", np.where(rows["size"] < 0.5, "few", "many"))
    rows.loc[::50, "size"] = np.nan
    rows.to_csv(tmp_path / "mine.csv", index=False)
    return tmp_path / "mine.csv"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_table_of_ones_own_is_split_into_training_and_held_out_rows(
    results: Path, table: Path, library: str
) -> None:
    own = {"data": str(table), "target": "label"}
    epochs = train(trees(library, global_batch=400, steps_per_epoch=20, workload_args=own)).tables()["epochs"]
    assert epochs.samples.tolist() == [8000, 8000] and epochs.test_accuracy.iloc[1] > 0.9
    assert (epochs.test_accuracy.iloc[1] * 100) % 1 == pytest.approx(0, abs=1e-9), "of 100 rows"
    for changes, why in (
        ({"global_batch": 500}, "global_batch=400"),
        ({"workload_args": own | {"target": "lable"}}, "no column 'lable'"),
        ({"workload_args": own | {"target": "size"}}, "must be a class"),
    ):
        with pytest.raises(WorkloadError, match=why):
            train(trees(library, **{"global_batch": 400, "workload_args": own} | changes))


def test_a_parquet_table_trains_like_the_same_csv(results: Path, table: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.read_csv(table).to_parquet(table.with_suffix(".parquet"))
    losses = []
    for suffix in (".csv", ".parquet"):
        own = {"data": str(table.with_suffix(suffix)), "target": "label"}
        epochs = train(trees("XGBoost", global_batch=400, workload_args=own)).tables()["epochs"]
        losses.append(epochs.test_loss.tolist())
    assert losses[0] == losses[1] and losses[0][1] < np.log(3)


def test_an_option_that_trees_do_not_use_is_refused_before_a_run_begins(results: Path) -> None:
    with pytest.raises(WorkloadError, match="does not use accumulate, optimizer"):
        train(trees("XGBoost", optimizer="adamw", accumulate=2))
    assert not (results / "runs").exists()


def test_a_signal_ends_the_run_with_the_reason(results: Path) -> None:
    config = trees("XGBoost", global_batch=100)
    with (
        setup(config) as ranks,
        pytest.raises(RuntimeError, match=r"SIGUSR1 in epoch 1.*no checkpoint"),
        Recorder("trees", global_batch=100, ranks=ranks) as recorder,
    ):
        XGBoost(config).run(ranks, recorder, [SIGUSR1])


def test_held_out_rows_of_one_class_have_no_area(results: Path) -> None:
    config = trees("XGBoost", global_batch=100)
    model = XGBoost(config)
    model.test_x, model.test_y, model.classes = None, np.zeros(4, dtype=int), 2
    model._predict = lambda booster: np.full(4, 0.5)
    assert model._evaluate(None).keys() == {"test_accuracy", "test_loss", "eval_seconds"}


def test_the_area_under_the_curve_is_the_share_of_ordered_pairs() -> None:
    scores, positive = np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, True, False, True])
    assert area(scores, positive) == (1 + 0.5 + 1 + 1) / 4
    assert np.isnan(area(scores, np.ones(4, dtype=bool)))
