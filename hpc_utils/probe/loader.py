"""How many images a second the trainer's own loader makes, against what training takes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpc_utils import paths, provenance, records
from hpc_utils.config import RunConfig
from hpc_utils.records.folder import read_json

from .bench import Bench
from .check import Check, Facts, Seen, failed, not_applicable, passed, places, unknown
from .data import is_here
from .group import enter

BATCH = 128
NEWEST = 50  # runs to look at
SHARE = 0.5  # of a step
EXPECTED = f"making a batch takes less than {SHARE:.0%} of a training step"


def look(bench: Bench) -> Facts:
    """Images a second on this rank, all ranks at once, of the first data set that is here."""
    from hpc_utils.train.loader import Loader
    from hpc_utils.train.resolve import resolve
    from hpc_utils.train.sampler import Sampler

    enter(bench)
    ranks = bench.ranks
    name = next((name for name in ("cifar10", "digits") if is_here(name)), None)
    if name is None:
        return {"dataset": None}
    config = RunConfig(workload="cnn", dataset=name, batch_per_device=BATCH)
    workload = resolve(config)
    loader = Loader(workload.train, workload, config, ranks.device)
    batch = BATCH * ranks.world_size
    sampler = Sampler(len(workload.train), batch, rank=ranks.rank, world_size=ranks.world_size, steps=10_000)
    ranks.barrier()
    began, images, end = time.perf_counter(), 0, time.perf_counter() + bench.share(0.15, 1.5)
    for inputs, _ in loader.batches(sampler.epoch(1), 1):
        images += len(inputs)
        if time.perf_counter() > end:
            break
    ranks.synchronize()
    return {
        "dataset": name,
        "rate": images / (time.perf_counter() - began),
        "need": needed(name) if bench.is_main else None,
    }


def needed(dataset: str) -> float | None:
    """Images a second that one rank trained at most, of the newest runs on this hardware; None if there are none."""
    rates = [
        run["throughput"] / run["world_size"]
        for run in _newest(paths.runs())
        if run["dataset"] == dataset and run["hardware_id"] == provenance.hardware_id()
    ]
    return max(rates, default=None)


def judge(seen: Sequence[Seen]) -> Check:
    """The slowest rank's loader against the fastest training."""
    slowest = min(seen, key=lambda one: one.facts["rate"] if one.facts["dataset"] else 0)
    facts, need = slowest.facts, seen[0].facts.get("need")
    if facts["dataset"] is None:
        return not_applicable("no data set here")
    said = f"{facts['dataset']}: {facts['rate']:,.0f} images/s a rank"
    if need is None:
        again = "run a study first, then ask again"
        return unknown(f"{said}; no run on this hardware says what training takes", EXPECTED, again)
    part = need / facts["rate"]
    said += f", training takes {need:,.0f}: {part:.0%} of a step"
    if part > SHARE:
        fix = (
            "copy the data to a disk of the node (`storage.node_local`), or give ranks more cores (threads_per_rank)"
        )
        return failed(said, EXPECTED, fix, places([slowest]))
    return passed(said, EXPECTED)


def _newest(runs: Path) -> Iterator[dict[str, Any]]:
    """The rows of the newest runs; those that are not complete or cannot be true are left out."""
    folders = [path for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[:NEWEST]:
        if (read_json(folder / "status.json") or {}).get("state") == "complete":
            with suppress(ValueError, OSError):  # Refused is a ValueError
                yield records.load_run(folder)["run"]
