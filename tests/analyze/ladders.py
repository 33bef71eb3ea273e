"""Ladders by hand: index and runs of a study whose effects are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

import pandas as pd

from hpc_utils.analyze.ablation import Ladder
from hpc_utils.records import Records
from hpc_utils.records.study import StudyIndex

from .runs import MIB, run

PHASES = {"data_seconds": 1e-3, "forward_seconds": 2e-3, "backward_seconds": 4e-3, "optimizer_seconds": 1e-3}


def ladder(
    gains: Mapping[str, float],
    *,
    repeats: Iterable[int] = (1, 2, 3),
    barred: Mapping[str, str] | None = None,
    drift: Callable[[int], float] = lambda repeat: 1.0,
    noise: Callable[[str, int], float] = lambda series, repeat: 1.0,
) -> tuple[StudyIndex, pd.DataFrame, pd.DataFrame]:
    """(study, runs, epochs): steps whose gains multiply; `drift` slows a whole repeat, `noise` one run.

    The first cumulative rung is the first step alone. Each step makes the start a second longer and the memory 10 %
    more. Accuracy is 0.9 + 0.01 a repeat for all, and losses are likewise equal.
    """
    barred, plain, speed = barred or {}, "plain", 1.0
    steps, rungs, so_far = [], {plain: (1.0, 0)}, 0
    for name, gain in gains.items():
        why = barred.get(name, "")
        steps.append({"name": name, "about": f"about {name}", "parameters": {name: True}, "why": why,
                      "alone": f"alone-{name}", "upto": None if why else f"upto-{name}"})  # fmt: skip
        if not why:
            speed, so_far = speed * gain, so_far + 1
            rungs |= {f"alone-{name}": (gain, 1), f"upto-{name}": (speed, so_far)}
    index, rows, epochs = [], [], []
    for repeat, (series, (gain, changes)) in itertools.product(repeats, rungs.items()):
        first = steps[0]["name"]
        run_id = f"{'alone-' + first if series == 'upto-' + first else series}-r{repeat}"
        index.append({"run_id": run_id, "series": series, "ranks": 1, "repeat": repeat, "parameters": {}})
        if run_id in {row["run_id"] for row in rows}:
            continue
        seconds = 10 / gain * drift(repeat) * noise(series, repeat)
        rows.append(run(1, seconds, parallel="none", repeat=repeat, run_id=run_id, warmup_seconds=2.0 + changes,
                        peak_rss_bytes=100 * MIB * 1.1**changes))  # fmt: skip
        learnt = {"test_accuracy": 0.9 + 0.01 * repeat, "test_loss": 0.3, "train_loss": 0.4}
        phases = {name: value / gain for name, value in PHASES.items()}
        timed = {"steps": 10, "seconds": seconds, "step_mean": sum(phases.values())}
        epochs.append({"run_id": run_id, "epoch": 1} | timed | phases | learnt)
    study = StudyIndex(name="made-up", runs=index, ablation={"plain": plain, "steps": steps})
    return study, pd.DataFrame(rows), pd.DataFrame(epochs)


def of(runs: pd.DataFrame, study: StudyIndex, epochs: pd.DataFrame | None = None) -> Ladder:
    return Ladder(Records(runs, epochs), study)
