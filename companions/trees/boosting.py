"""Gradient-boosted trees of XGBoost and LightGBM as workloads: one process, whose threads are all cores of its device.

    hpc run notebooks/01_baseline.ipynb -p workload=companions.trees.boosting:XGBoost -p global_batch=500000 -p threads_per_rank=8
    ... -p workload=companions.trees.boosting:LightGBM -p workload_args.data=/data/mine.parquet -p workload_args.target=label

A step is a boosting round: one tree (one for each class, if they are more than two) over all `global_batch` training rows. An
epoch is `steps_per_epoch` rounds, by default one, and an evaluation on the rows that are held out. `lr` is the shrinkage
of each tree. Both libraries find splits in histograms, grow the leaf of the largest gain first, and have the same
regularisation, so that they do the same work. `pip install -e '.[trees]'` installs them.
"""

from __future__ import annotations

import importlib
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from signal import Signals
from typing import Any

import numpy as np

from hpc_utils.config import RunConfig
from hpc_utils.train import Recorder, WorkloadError
from hpc_utils.train.ranks import Ranks
from hpc_utils.train.workload import Loop

BINS, MIN_HESSIAN, L2 = 255, 1.0, 1.0  # of both libraries
HELD_OUT = 0.25  # held out rows of generated data, over the training rows
INFORMATIVE = 10  # features that the generated target depends on


class Trees(Loop):
    """Boosting of one library on generated data, or on a table.

    Args:
        leaves: the most of a tree. features: columns of generated data.
        data: a CSV or Parquet file; `global_batch` of its rows, drawn by the seed, are trained on, the others held out.
        target: its column of classes. Columns of text are categories.

    Raises:
        WorkloadError: the library is not installed, or the data do not fit.
    """

    package: str  # of the library
    options = frozenset(
        {"workload", "workload_args", "source", "dataset", "device", "parallel", "threads_per_rank", "global_batch"}
        | {"batch_per_device", "epochs", "steps_per_epoch", "lr", "seed", "repeat", "warmup_steps", "evaluate_every"}
        | {"phase_every", "profile", "profile_steps", "monitor_seconds"}
    )

    def __init__(
        self, config: RunConfig, leaves: int = 63, features: int = 28, data: str = "", target: str = ""
    ) -> None:
        self.config, self.leaves, self.features = config, leaves, features
        self.file, self.target = data, target
        try:
            self.library = importlib.import_module(self.package)
        except ImportError as error:
            raise WorkloadError(f"{error}: pip install -e '.[trees]'") from None

    def run(self, ranks: Ranks, recorder: Recorder, received: Sequence[Signals]) -> None:
        config, begun = self.config, time.perf_counter()
        if ranks.world_size > 1:
            raise WorkloadError(f"{config.workload} trains in one process: use parallel=none, and threads_per_rank")
        rows = config.batches(ranks.world_size)[0]
        x, y, self.test_x, self.test_y = self._table(rows) if self.file else self._generated(rows)
        self.classes, self.threads = 1 + int(max(y.max(), self.test_y.max())), ranks.threads
        self._load(x, y, ranks.device.type)
        prepared = time.perf_counter()
        booster = self._booster()
        for step in range(config.warmup_steps):
            self._boost(booster, step)
        recorder.facts |= {
            "train_samples": rows,
            "test_samples": len(self.test_y),
            "setup_seconds": prepared - begun,
            "warmup_seconds": time.perf_counter() - prepared,
        }
        booster, steps = self._booster(), config.steps_per_epoch or 1
        recorder.expect(config.epochs, steps)
        for epoch in range(1, config.epochs + 1):
            for step in recorder.epoch(range(steps)):
                self._boost(booster, (epoch - 1) * steps + step)
                recorder.step(samples=rows, lr=config.lr)
                if received:
                    raise RuntimeError(
                        f"{received[0].name} in epoch {epoch}: trees write no checkpoint, and the same command starts again; "
                        "request more time, or train fewer epochs"
                    )
            if config.evaluate_every and (epoch % config.evaluate_every == 0 or epoch == config.epochs):
                recorder.note(**self._evaluate(booster))

    def _evaluate(self, booster: Any) -> dict[str, float]:
        """test_loss, test_accuracy, test_auc (of two classes) and eval_seconds."""
        begun, y = time.perf_counter(), self.test_y
        p = np.asarray(self._predict(booster))
        if p.ndim == 1:
            p = np.stack([1 - p, p], axis=1)
        found = {"test_auc": area(p[:, 1], y == 1)} if self.classes == 2 and 0 < y.mean() < 1 else {}
        found["test_accuracy"] = float((p.argmax(axis=1) == y).mean())
        found["test_loss"] = float(-np.log(p[np.arange(len(y)), y].clip(1e-15)).mean())
        return found | {"eval_seconds": time.perf_counter() - begun}

    def _generated(self, rows: int) -> tuple[np.ndarray, ...]:
        """Normal features, and two equally frequent classes that depend on ten of them, with logistic noise."""
        if self.features < INFORMATIVE:
            raise WorkloadError(f"features={self.features}: the generated data have {INFORMATIVE} or more")
        numbers = np.random.default_rng(self.config.seed)
        x = numbers.standard_normal((rows + max(1, round(HELD_OUT * rows)), self.features), dtype=np.float32)
        score = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + np.abs(x[:, 3]) - x[:, 4] ** 2 / 2
        score += x[:, 5:INFORMATIVE].sum(axis=1) / 2 + numbers.logistic(size=len(x))
        y = (score > np.median(score)).astype(np.int64)
        return x[:rows], y[:rows], x[rows:], y[rows:]

    def _table(self, rows: int) -> tuple[Any, ...]:
        import pandas as pd

        path = Path(self.file)
        try:
            table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        except (OSError, ImportError, ValueError) as error:
            raise WorkloadError(f"{path}: {error}") from error
        if self.target not in table:
            raise WorkloadError(
                f"{path} has no column {self.target!r}: set workload_args.target to the column of classes"
            )
        if not rows < len(table):
            raise WorkloadError(
                f"{path} has {len(table)} rows, and some must be held out: global_batch={round(len(table) / (1 + HELD_OUT))}"
            )
        order = np.random.default_rng(self.config.seed).permutation(len(table))
        y, names = pd.factorize(table.pop(self.target), sort=True)
        if y.min() < 0 or not 1 < len(names) <= len(table) / 2:
            raise WorkloadError(f"{path}: {self.target} must be a class in every row, of two or more classes")
        x = table.astype(dict.fromkeys(table.select_dtypes(exclude=["number", "bool"]), "category"))
        train, test = order[:rows], order[rows:]
        return x.iloc[train], y[train], x.iloc[test], y[test]

    @abstractmethod
    def _load(self, x: Any, y: np.ndarray, device: str) -> None:
        """Bin the training rows."""

    @abstractmethod
    def _booster(self) -> Any:
        """A model without trees."""

    @abstractmethod
    def _boost(self, booster: Any, number: int) -> None:
        """Add the trees of the round `number`."""

    @abstractmethod
    def _predict(self, booster: Any) -> Any:
        """Probabilities of the held-out rows: (rows,) of the second of two classes, or (rows, classes)."""


class XGBoost(Trees):
    """XGBoost, on a CPU or one GPU."""

    package = "xgboost"

    def _load(self, x: Any, y: np.ndarray, device: str) -> None:
        if device == "cuda" and not self.library.build_info()["USE_CUDA"]:
            raise WorkloadError(
                "this XGBoost has no CUDA: pip install xgboost in place of xgboost-cpu, or use device=cpu"
            )
        self.parameters = {
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_leaves": self.leaves,
            "max_depth": 0,
            "max_bin": BINS,
            "learning_rate": self.config.lr,
            "reg_lambda": L2,
            "min_child_weight": MIN_HESSIAN,
            "nthread": self.threads,
            "device": device,
            "objective": "multi:softprob" if self.classes > 2 else "binary:logistic",
            "num_class": self.classes if self.classes > 2 else None,
        }
        self.data = self.library.QuantileDMatrix(x, y, max_bin=BINS, nthread=self.threads, enable_categorical=True)

    def _booster(self) -> Any:
        return self.library.Booster(self.parameters, [self.data])

    def _boost(self, booster: Any, number: int) -> None:
        booster.update(self.data, number)

    def _predict(self, booster: Any) -> Any:
        return booster.inplace_predict(self.test_x)


class LightGBM(Trees):
    """LightGBM, on a CPU."""

    package = "lightgbm"

    def _load(self, x: Any, y: np.ndarray, device: str) -> None:
        if device != "cpu":
            raise WorkloadError("LightGBM trains on the CPU here: use device=cpu")
        self.parameters = {
            "objective": "multiclass" if self.classes > 2 else "binary",
            "num_class": self.classes if self.classes > 2 else 1,
            "num_leaves": self.leaves,
            "max_bin": BINS,
            "learning_rate": self.config.lr,
            "lambda_l2": L2,
            "min_sum_hessian_in_leaf": MIN_HESSIAN,
            "min_data_in_leaf": 1,
            "num_threads": self.threads,
            "verbosity": -1,
        }
        self.data = self.library.Dataset(x, y, params=self.parameters).construct()

    def _booster(self) -> Any:
        return self.library.Booster(self.parameters, self.data)

    def _boost(self, booster: Any, number: int) -> None:
        booster.update()

    def _predict(self, booster: Any) -> Any:
        return booster.predict(self.test_x, num_threads=self.threads)


def area(scores: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs of both classes that `scores` order, ties counted half."""
    from scipy.stats import rankdata

    many = int(positive.sum())
    pairs = many * (len(positive) - many)
    return float((rankdata(scores)[positive].sum() - many * (many + 1) / 2) / pairs) if pairs else float("nan")
