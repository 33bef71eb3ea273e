"""What one device does in a step, and when its gradients are ready to travel: the compute side of the model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

PHASES = ("data", "forward", "backward", "optimizer")
MIB = 2**20


class Line(NamedTuple):
    """Seconds against the batch: `fixed` + `per_sample` x batch."""

    fixed: float
    per_sample: float

    def seconds(self, batch: float) -> float:
        return self.fixed + self.per_sample * batch

    @classmethod
    def through(cls, batches: Sequence[float], seconds: Sequence[float]) -> Line:
        """Least relative squares; neither part below zero. One batch alone: all of it per sample."""
        from scipy.optimize import nnls

        batches, seconds = np.asarray(batches, float), np.maximum(np.asarray(seconds, float), 1e-9)
        if len(set(batches)) == 1:
            return cls(0.0, float(np.mean(seconds / batches)))
        (fixed, per_sample), _ = nnls(np.column_stack([1 / seconds, batches / seconds]), np.ones(len(seconds)))
        return cls(float(fixed), float(per_sample))


class Bucket(NamedTuple):
    """`size` bytes of gradients that are all ready when `ready` (0 to 1) of the backward pass is done."""

    size: float
    ready: float


@dataclass(frozen=True)
class Work:
    """One step of one device, alone.

    Attributes:
        data, forward, backward, optimizer: seconds against the batch per device.
        gradients: (bytes, share of the backward pass that is done when it is ready), in order of readiness.
        jitter: standard deviation of the log of a step's time.
        source: where it comes from, in words.
    """

    data: Line
    forward: Line
    backward: Line
    optimizer: Line
    gradients: tuple[Bucket, ...]
    jitter: float = 0.0
    source: str = ""

    @property
    def gradient_bytes(self) -> float:
        return sum(gradient.size for gradient in self.gradients)

    def seconds(self, batch: float) -> float:
        """A step's time at that batch per device."""
        return sum(getattr(self, phase).seconds(batch) for phase in PHASES)

    def buckets(self, bucket_mb: float) -> tuple[Bucket, ...]:
        """As DistributedDataParallel packs them after its first step: in order of readiness, each closed by the gradient
        that fills it (torch's `compute_bucket_assignment_by_size`)."""
        return _packed(self.gradients, bucket_mb * MIB)

    @classmethod
    def from_profile(cls, profile: Mapping[str, Any], jitter: float | None = None) -> Work:
        """From a record of `hpc bench compute` (`results/probes/compute`)."""
        lines, steps = {}, {one["batch"]: np.zeros(len(one["forward"])) for one in profile["batches"]}
        for phase in PHASES:
            pairs = [(one["batch"], float(np.median(one[phase]))) for one in profile["batches"]]
            lines[phase] = Line.through(*zip(*pairs, strict=True))
            for one in profile["batches"]:
                steps[one["batch"]] = steps[one["batch"]] + np.asarray(one[phase])
        spread = float(np.median([np.std(np.log(times)) for times in steps.values()])) if jitter is None else jitter
        gradients = tuple(Bucket(one["bytes"], one["fraction"]) for one in profile["ready"])
        return cls(**lines, gradients=gradients, jitter=spread, source=f"compute profile {profile.get('name', '')}")

    @classmethod
    def from_runs(cls, runs: pd.DataFrame, epochs: pd.DataFrame, *, bytes_each: int = 4) -> Work:
        """From the phases that runs without a group recorded, of one family (`perfmodel.families`).

        When which gradient is ready is not in the records: they are taken to come evenly over the backward pass.

        Raises:
            ValueError: no run without a process group is among them.
        """
        alone = runs[runs.parallel == "none"]
        if alone.empty:
            raise ValueError(
                "the model needs runs without a process group (parallel=none): their compute time is its base"
            )
        rows = epochs.merge(alone[["run_id", "batch_per_device"]], on="run_id")
        lines = {}
        for phase in PHASES:
            middle = rows.groupby("batch_per_device")[f"{phase}_seconds"].median()
            lines[phase] = Line.through(middle.index.to_numpy(float), middle.to_numpy(float))
        parts = 20
        size = float(alone.parameters.iloc[0]) * bytes_each / parts
        gradients = tuple(Bucket(size, (part + 1) / parts) for part in range(parts))
        return cls(
            **lines, gradients=gradients, jitter=jitter(rows), source=f"phases of {len(alone)} runs without a group"
        )


def of(runs: pd.DataFrame, epochs: pd.DataFrame, profiles: Iterable[Mapping[str, Any]] = ()) -> Work:
    """What the runs of one family (`perfmodel.families`) do on one device: from the first of `profiles` (records of
    `results/probes/compute`, newest first) of the same model, data set and precision on the same machine, else from their
    phases. Other knobs (the optimizer, augmentation) may differ: the model's `scale` takes them up.

    Raises:
        ValueError: no such profile, and no run without a process group.
    """
    own = epochs[epochs.run_id.isin(runs.run_id[runs.parallel == "none"])]
    for profile in profiles:
        if _describes(profile, runs.iloc[0]):
            return Work.from_profile(profile, jitter(own) if len(own) else None)
    return Work.from_runs(runs, epochs)


def _describes(profile: Mapping[str, Any], run: pd.Series) -> bool:
    same = ("workload", "dataset", "precision", "threads_per_rank", "parameters", "device_name")
    return str(run.hardware_id).endswith(profile["hardware_id"]) and all(profile.get(n) == run[n] for n in same)


def jitter(epochs: pd.DataFrame) -> float:
    """Standard deviation of the log of step times, from their recorded median and 95th percentile."""
    ratio = (epochs.step_p95 / epochs.step_p50).dropna()
    return float(np.log(ratio.median()) / 1.645) if len(ratio) else 0.0


@functools.cache  # asked for again at every step of a fit
def _packed(gradients: tuple[Bucket, ...], limit: float) -> tuple[Bucket, ...]:
    packed, size, ready = [], 0.0, 0.0
    for gradient in gradients:
        size, ready = size + gradient.size, max(ready, gradient.ready)
        if size >= limit:
            packed.append(Bucket(size, ready))
            size = 0.0
    return tuple([*packed, Bucket(size, ready)] if size else packed)
