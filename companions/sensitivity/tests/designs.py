"""Factorials by hand: index and runs of a study whose effects are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from hpc_utils.records.study import StudyIndex
from tests.analyze.runs import run


def factorial(
    levels: Mapping[str, list[Any]],
    speed: Callable[..., float],
    *,
    repeats: Iterable[int] = (1, 2, 3),
    without: Callable[[dict[str, Any], int], bool] = lambda point, repeat: False,
) -> tuple[StudyIndex, pd.DataFrame]:
    """(study, runs) of every combination of `levels`; `speed` (sample/s) of a point and repeat; `without`: not measured."""
    index, rows = [], []
    for repeat, values in itertools.product(repeats, itertools.product(*levels.values())):
        point = dict(zip(levels, values, strict=True))
        run_id = f"{'-'.join(map(str, values))}-r{repeat}"
        index.append({"run_id": run_id, "series": "s", "ranks": 2, "repeat": repeat,
                      "parameters": point | {"repeat": repeat, "seed": repeat, "workload_args": {}}})  # fmt: skip
        if not without(point, repeat):
            rows.append(run(2, 5120 / speed(point, repeat), run_id=run_id, repeat=repeat))
    return StudyIndex(name="made-up", runs=index), pd.DataFrame(rows)
