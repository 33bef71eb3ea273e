"""What a model's computing costs on a device: the record that `hpc bench compute` leaves, and what it says of a batch.

`results/probes/compute/<name>.json`: what was computed (`COMPUTED`), `hardware_id` (the machine's fingerprint), `device`,
`device_name`, `threads_per_rank` and `threads_asked` (null: a GPU's usual share), `parameters`, `gradient_bytes`; `batches`: {"batch", and the seconds of each measured
step under "data", "forward", "backward", "optimizer"}; `ready`: {"name", "bytes", "fraction"} of each parameter's
gradient in the order in which they are complete, the fraction of the backward pass gone by then (median); `provenance`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_utils.config import ConfigError, RunConfig

from . import probes
from .identity import measured

KIND = "compute"
PHASES = ("data", "forward", "backward", "optimizer")
BEYOND = 2.0  # how far from the nearest measured point a straight line is still believed, as a factor

# Knobs that decide what a device computes in a step, beside the batch.
COMPUTED = (
    "workload", "workload_args", "dataset", "stem", "augment", "label_smoothing", "optimizer", "precision",
    "channels_last",
)  # fmt: skip

# Knobs that would make another step of it, which no emulated device has: a profile is of the step without them.
PLAIN = ("compile", "activation_checkpointing", "accumulate", "loader", "fused_optimizer", "cutout")


class NotMeasured(ValueError):
    """A point lies too far from all that was measured; the message says how far that reaches."""


@dataclass(frozen=True)
class Profile:
    """A compute profile; `name` is its file's, a digest of its content in it."""

    name: str
    record: Mapping[str, Any]

    @property
    def gradient_bytes(self) -> int:
        """Of one step's gradients."""
        return self.record["gradient_bytes"]

    @property
    def device_name(self) -> str:
        return self.record["device_name"]

    @property
    def ready(self) -> list[tuple[str, int, float]]:
        """(parameter, bytes, fraction of the backward pass), in the order in which gradients are complete."""
        return [(one["name"], one["bytes"], one["fraction"]) for one in self.record["ready"]]

    def seconds(self, batch: int) -> dict[str, float]:
        """Median seconds of each phase of a step on `batch` samples, linear between measured batches.

        Raises:
            NotMeasured: less than half of the smallest, or more than twice the largest measured batch.
        """
        measured = sorted(self.record["batches"], key=lambda one: one["batch"])
        return {
            phase: interpolate([(one["batch"], statistics.median(one[phase])) for one in measured], batch)
            for phase in PHASES
        }


def interpolate(points: Sequence[tuple[float, float]], x: float) -> float:
    """y at `x` on the straight lines through `points`, in order of x; the outermost reach on by a factor of two.

    Raises:
        NotMeasured: beyond that.
    """
    first, last = points[0][0], points[-1][0]
    if not first / BEYOND <= x <= last * BEYOND:
        raise NotMeasured(f"{x:g} is too far from what was measured, {first:g} to {last:g}")
    if len(points) == 1:
        return points[0][1] * x / first
    after = next((place for place, (own, _) in enumerate(points) if own >= x and place), len(points) - 1)
    (x0, y0), (x1, y1) = points[after - 1 : after + 1]
    return max(0.0, y0 + (y1 - y0) * (x - x0) / (x1 - x0))


def computed(config: RunConfig) -> dict[str, Any]:
    """What of `config` a profile must agree with; of a user's own workload its file too."""
    known = measured(config.model_copy(update={"global_batch": 1, "batch_per_device": None}), 1)
    return {name: known[name] for name in COMPUTED} | {"source": known.get("source", "")}


def not_plain(config: RunConfig) -> list[str]:
    """Which of the knobs `PLAIN` are turned, as `name=value`."""
    given = {name: getattr(config, name) for name in PLAIN}
    return [f"{name}={value}" for name, value in given.items() if value != RunConfig.model_fields[name].default]


def newest(config: RunConfig, machine: str, results: Path | None = None) -> Profile | None:
    """The newest profile of what `config` computes, on that machine (its fingerprint); None if there is none.

    An emulated device may stand for CPU or GPU: without `threads_per_rank` either one's usual threads will do.
    """
    match = computed(config) | {"hardware_id": machine}

    def fits(record: Mapping[str, Any]) -> bool:
        asked = record.get(
            "threads_asked", record.get("threads_per_rank")
        )  # former versions noted what there was only
        alike = all(record.get(name) == value for name, value in match.items())
        return alike and asked == threads_asked(config, record.get("device", "cpu"))

    record = next(filter(fits, probes.read(KIND, results)), None)
    return Profile(record["name"], record) if record else None


def threads_asked(config: RunConfig, device: str) -> int | None:
    """Host threads that `config` asks for on that kind of device; None: a GPU's share of the cores, however many."""
    return config.threads_per_rank or (1 if device == "cpu" else None)


def required(config: RunConfig) -> Profile:
    """The profile that `config` names; ConfigError if it names none, or one that is not here."""
    found = named(config.compute_profile) if config.compute_profile else None
    if found is None:
        raise ConfigError(
            f"device='emulated' with compute_profile={config.compute_profile}: no such record in results/probes/{KIND}; `hpc run` and `hpc "
            f"submit` choose one, `hpc bench compute` makes one"
        )
    return found


def named(name: str, results: Path | None = None) -> Profile | None:
    """The profile of that name; None if there is none."""
    record = probes.newest(KIND, results, name=name)
    return Profile(name, record) if record else None
