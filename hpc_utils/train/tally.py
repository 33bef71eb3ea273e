"""What one rank has counted of an epoch: so far, or all of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .timing import PHASES, StepTime


@dataclass
class Tally:
    """One rank's counts of one epoch's training part.

    Attributes:
        samples: trained on. seconds: training, standing still not counted. standing: seconds stood still for
            checkpoints. faults: pages that the kernel had to find meanwhile. cpu: seconds of processor time. throttled:
            seconds without, because the share of a core was used up. joules: of the rank's device meanwhile;
            None if not known.
        lr: the last step's learning rate. sums: loss and metrics, summed over samples (float64 scalars).
        steps: times of the steps before `restarts`, how often the epoch was continued from a checkpoint.
    """

    samples: int = 0
    seconds: float = 0.0
    standing: float = 0.0
    faults: int = 0
    cpu: float = 0.0
    throttled: float = 0.0
    joules: float | None = 0.0
    lr: float | None = None
    sums: dict[str, Tensor] = field(default_factory=dict)
    steps: list[StepTime] = field(default_factory=list)
    restarts: int = 0

    def state(self, steps: list[StepTime]) -> dict[str, Any]:
        """As tensors and plain values, for a checkpoint; `steps` are those since the last restart."""
        steps = self.steps + steps
        times = [[step.seconds, *(step.phases.get(phase, math.nan) for phase in PHASES)] for step in steps]
        return {
            **vars(self),
            "sums": {name: value.cpu() for name, value in self.sums.items()},
            "steps": torch.tensor(times, dtype=torch.float64),
        }

    @classmethod
    def continued(cls, state: dict[str, Any], device: torch.device) -> Tally:
        """What it was when `state` was taken."""
        steps = [
            StepTime(seconds, {phase: t for phase, t in zip(PHASES, phases, strict=True) if not math.isnan(t)})
            for seconds, *phases in state["steps"].tolist()
        ]
        sums = {name: value.to(device) for name, value in state["sums"].items()}
        return cls(**{"joules": None} | state | {"sums": sums, "steps": steps})


def distribution(steps: list[StepTime]) -> dict[str, float]:
    """Step-time statistics in seconds over all ranks' steps, and the mean phases of the sampled ones."""
    if not steps:
        return {}
    seconds = np.array([step.seconds for step in steps])
    p50, p95, p99 = np.percentile(seconds, (50, 95, 99))
    row = {"step_mean": seconds.mean(), "step_p50": p50, "step_p95": p95, "step_p99": p99}
    for phase in PHASES:
        sampled = [step.phases[phase] for step in steps if phase in step.phases]
        if sampled:
            row[f"{phase}_seconds"] = np.mean(sampled)
    return {name: float(value) for name, value in row.items()}
