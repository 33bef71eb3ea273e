"""True records without training: what a run of two ranks and two epochs leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hpc_utils.records import RunFolder, schema

RANKS, EPOCHS, STEPS, BATCH = 2, 2, 5, 64


def epoch_rows() -> list[dict[str, Any]]:
    samples = STEPS * BATCH
    return [
        {"epoch": n, "steps": STEPS, "samples": samples, "padded_samples": 0, "seconds": n * 0.7,
         "throughput": samples / (n * 0.7), "step_p50": n * 0.1, "test_accuracy": 0.5 + n / 10}
        for n in range(1, EPOCHS + 1)
    ]  # fmt: skip


def rank_rows() -> list[dict[str, Any]]:
    return [
        {"rank": rank, "local_rank": rank, "host": f"node{rank + 1}", "device": "cpu", "device_name": f"CPU {rank}",
         "cores": str(rank), "samples": EPOCHS * STEPS * BATCH // RANKS, "seconds": 2.0 - rank / 100,
         "peak_rss_bytes": (rank + 1) * 10**8, "mode_rss_bytes": (2 - rank) * 10**7}
        for rank in range(RANKS)
    ]  # fmt: skip


def run_json(run_id: str) -> dict[str, Any]:
    return {
        "schema": schema.VERSION,
        "run_id": run_id,
        "config": {"workload": "cnn", "dataset": "digits", "parallel": "ddp", "precision": "fp32", "repeat": 1,
                   "seed": 0, "global_batch": BATCH},
        "world_size": RANKS, "nodes": 1, "ranks_per_node": RANKS, "global_batch": BATCH,
        "batch_per_device": BATCH // RANKS, "device": "cpu", "backend": "gloo", "threads_per_rank": 1,
        "pinned": True, "oversubscribed": False, "hardware_id": "0123abcd", "parameters": 10,
    }  # fmt: skip


def provenance_json() -> dict[str, Any]:
    return {
        "digest": "d" * 64,
        "commit": "c" * 40,
        "dirty": False,
        "collected_at": "2026-01-01T00:00:00+00:00",
        "versions": {"torch": "2.13.0"},
        "job": {"scheduler": "slurm", "id": "17"},
    }


@pytest.fixture
def record(results: Path) -> Callable[..., Path]:
    """`record("name", run=..., provenance=..., epochs=..., ranks=...)`: the folder of a complete run."""

    def write(
        name: str,
        *,
        run: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        epochs: list[dict] | None = None,
        ranks: list[dict] | None = None,
    ) -> Path:
        folder = RunFolder.claimed(results / "runs" / name)
        folder.write_json("run.json", run_json(name) | (run or {}))
        folder.write_json("provenance.json", provenance_json() | (provenance or {}))
        rows = epoch_rows() if epochs is None else epochs
        columns = [*schema.names(schema.EPOCHS), *(n for n in (rows[0] if rows else ()) if n.startswith("own_"))]
        folder.write_table("epochs.csv", columns, rows)
        folder.write_table("ranks.csv", schema.names(schema.RANKS), rank_rows() if ranks is None else ranks)
        steps = [
            {"rank": rank, "epoch": epoch, "step": step, "seconds": 0.1}
            for rank in range(RANKS)
            for epoch in range(1, EPOCHS + 1)
            for step in range(1, STEPS + 1)
        ]
        folder.append_table("steps.csv.gz", schema.names(schema.STEPS), steps)
        folder.close("complete")
        return folder.path

    return write
