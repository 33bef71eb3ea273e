"""Runs by hand: whole rows of `schema.RUNS` whose scaling is known."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from hpc_utils.records import schema

REPEATS = (0.99, 1.0, 1.01)  # factors of the time
MIB = 2**20


def run(
    world: int, seconds: float, *, parallel: str = "ddp", nodes: int = 1, batch: int = 512, steps: float | None = 10,
    **other,
) -> dict:  # fmt: skip
    """A run of one epoch of `steps` steps (100 for a pass over the data) that took `seconds`."""
    samples = batch * (steps or 100)
    row = dict.fromkeys(schema.names(schema.RUNS)) | {
        "run_id": f"{parallel}{nodes}x{world // nodes}-b{batch}-{seconds:g}", "workload": "cnn", "dataset": "digits",
        "precision": "fp32", "device": "cpu", "device_name": "X", "hardware_id": "h", "threads_per_rank": 1,
        "oversubscribed": False, "parallel": parallel, "world_size": world, "nodes": nodes,
        "ranks_per_node": world // nodes, "global_batch": batch, "batch_per_device": batch // world,
        "steps_per_epoch": steps, "epochs": 1, "seconds": seconds, "samples": samples,
        "throughput": samples / seconds, "repeat": 1, "restarts": 0, "host": "n1", "pinned": True,
        "peak_rss_bytes": 400 * MIB, "mean_rss_bytes": 300 * MIB, "mode_rss_bytes": 290 * MIB, "page_faults": 10.0,
    }  # fmt: skip
    return row | other


def repeated(world: int, seconds: float, factors: Iterable[float] = REPEATS, **other) -> list[dict]:
    """Its repeats."""
    return [run(world, seconds * factor, repeat=n, **other) for n, factor in enumerate(factors, 1)]


def study(*, strong: dict[str, float] | None = None, weak: dict[str, float] | None = None, **other) -> pd.DataFrame:
    """Curves by the efficiency of each layout ("2x4"), against one process without a group; 3 repeats each.

    Strong: 768 samples in all. Weak: 100 a device, so that no point lies on both. DDP on one rank takes 2 % longer.
    """
    rows = []
    for efficiencies, total in ((strong, True), (weak, False)):
        if efficiencies is None:
            continue
        one = 768 if total else 100
        rows += repeated(1, 8.0, parallel="none", batch=one, **other) + repeated(1, 8.16, batch=one, **other)
        for layout, reached in efficiencies.items():
            nodes, per_node = map(int, layout.split("x"))
            world = nodes * per_node
            seconds, batch = (8.0 / world / reached, one) if total else (8.0 / reached, one * world)
            rows += repeated(world, seconds, nodes=nodes, batch=batch, **other)
    return pd.DataFrame(rows)
