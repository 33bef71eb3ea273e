"""A study's planned runs as plain values, from which `analyze.budget` predicts what they will take."""

from __future__ import annotations

from typing import Any

from hpc_utils import datasets
from hpc_utils.records.identity import measured, settings

from .study import Plan, Point


def points(plan: Plan) -> list[dict[str, Any]]:
    """One entry a point, as `analyze.budget.estimate` wants them. Sizes of data sets are the catalogue's: they need not
    be here; of a workload of the user's they are not known (None)."""
    return [_plain(point, plan.place.hardware) for point in plan.points]


def _plain(point: Point, hardware: str) -> dict[str, Any]:
    config, layout = point.request.config, point.request.layout
    parameters = measured(config, layout.ranks)
    data = None if ":" in config.workload else datasets.info(config.dataset)
    train = data and data.train.count
    every = config.evaluate_every
    return {
        "run_id": point.request.run_id,
        "series": point.series,
        "repeat": point.repeat,
        "hardware_id": hardware,
        "settings": settings(parameters),
        **{name: parameters[name] for name in ("workload", "dataset", "precision", "parallel")},
        **{name: parameters[name] for name in ("global_batch", "batch_per_device", "epochs", "warmup_steps")},
        "cores_per_rank": config.cores_per_rank or 0.0,
        "link_gbit": config.link_gbit if layout.ranks > 1 else None,  # one rank needs none
        "world_size": layout.ranks,
        "nodes": layout.nodes,
        "ranks_per_node": layout.ranks_per_node,
        "train_samples": train,
        "test_samples": data and data.test.count,
        "steps": config.steps_per_epoch or (train and train // parameters["global_batch"]),
        "evaluations": -(-config.epochs // every) if every else 0,
    }
