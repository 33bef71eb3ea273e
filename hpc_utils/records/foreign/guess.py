"""What somebody's columns and words probably mean, by their names; only drafts are made from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpc_utils import toml_config

from .mapping import NAMES, NOT_COMPARABLE

# What others call it; small letters and digits, words parted by _.
CALLED = {
    "world_size": "world ranks num_ranks n_ranks gpus num_gpus n_gpus ngpus gpu_count n_gpu devices num_devices workers "
    "num_workers processes nproc np p n",
    "nodes": "num_nodes n_nodes nnodes node_count hosts",
    "ranks_per_node": "gpus_per_node nproc_per_node processes_per_node tasks_per_node ppn",
    "parallel": "parallelism mode strategy method distributed",
    "workload": "model network arch architecture benchmark",
    "dataset": "data data_set",
    "precision": "dtype amp",
    "device_name": "device gpu gpu_type gpu_model gpu_name hardware accelerator",
    "global_batch": "global_batch_size total_batch total_batch_size effective_batch_size",
    "batch_per_device": "batch_per_gpu local_batch local_batch_size per_gpu_batch_size per_device_batch_size",
    "samples": "num_samples n_samples images num_images samples_per_epoch images_per_epoch dataset_size",
    "steps": "num_steps n_steps iterations iters batches steps_per_epoch",
    "seconds": "time epoch_time time_per_epoch elapsed elapsed_time duration runtime wall_time walltime train_time zeit",
    "throughput": "images_per_sec images_per_second img_per_sec imgs_per_sec samples_per_sec samples_per_second "
    "img_per_s images_per_s samples_per_s img_s images_s samples_s ips samples_sec images_sec durchsatz",
    "repeat": "run trial repetition rep run_id",
    "epoch": "epoch_number epoche",
    "test_accuracy": "accuracy acc val_acc val_accuracy test_acc top1 top_1",
    "peak_allocated_bytes": "peak_memory max_memory memory gpu_memory mem peak_mem max_mem",
}
BATCHES = ("batch", "batch_size", "batchsize", "bs")  # of one device or of all: nobody can tell
# Of a name's last word: how much of our unit its numbers are.
UNITS = {
    "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "us": 1e-6, "ms": 1e-3, "min": 60.0, "h": 3600.0,
    "b": 1.0, "bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
    "%": 0.01, "percent": 0.01, "pct": 0.01,
}  # fmt: skip
# Words of theirs for ours; small letters and digits.
MEANT = {
    "parallel": {
        "none": "single singlegpu 1gpu serial baseline noddp", "ddp": "distributeddataparallel torchddp",
        "zero1": "zero zeroredundancyoptimizer", "fsdp": "fsdp2 fullysharded fullyshard fullyshardeddataparallel",
        NOT_COMPARABLE: "dp dataparallel nndataparallel",
    },
    "precision": {"fp32": "float32 float single full 32", "fp16": "float16 half 16", "bf16": "bfloat16", "tf32": ""},
}  # fmt: skip
SIMILAR = 0.82  # difflib's ratio, from which a name is taken for another


class Guess(NamedTuple):
    """`name` of ours is perhaps `theirs`, whose numbers times `scale` are in our unit."""

    name: str
    theirs: str
    scale: float
    why: str


def columns(table: Mapping[str, Sequence[str]]) -> list[Guess]:
    """What can be guessed of {column of theirs: its cells}, in our order; each column and each name at most once."""
    found: dict[str, Guess] = {}
    known = {word: name for name in reversed(NAMES) for word in (name, *CALLED[name].split())}
    for exact in (True, False):
        for theirs, cells in table.items():
            plain, scale = _plain(theirs, known)
            word = plain if exact else toml_config.nearest(plain, known, cutoff=SIMILAR)
            name = known.get(word)
            if not name or name in found or plain in BATCHES or any(theirs == one.theirs for one in found.values()):
                continue
            if name == "test_accuracy" and any(_percent(cell) for cell in cells):
                scale = 0.01
            found[name] = Guess(name, theirs, scale, "its name" if exact else f"the similar {word}")
    return [found[name] for name in NAMES if name in found]


def word(name: str, theirs: str) -> str:
    """Our word for theirs; empty if nobody can tell."""
    plain = re.sub(r"[^a-z0-9]", "", theirs.casefold())
    return next((ours for ours, words in MEANT[name].items() if plain in (ours, *words.split())), "")


def is_batch(theirs: str) -> bool:
    """Whether the column holds a batch, of one device or of all."""
    return _plain(theirs, {})[0] in BATCHES


def _plain(theirs: str, known: Mapping[str, str]) -> tuple[str, float]:
    """A column's name without its unit, and the scale that the unit asks for."""
    words = re.findall(r"[a-z0-9]+|%", theirs.casefold().replace("/", "_per_"))
    whole = "_".join(words)
    if whole in known or len(words) < 2 or words[-1] not in UNITS or words[-2] == "per":
        return whole, 1.0
    return "_".join(words[:-1]), UNITS[words[-1]]


def _percent(cell: str) -> bool:
    try:
        return float(cell.replace(",", ".")) > 1
    except ValueError:
        return False
