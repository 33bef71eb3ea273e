"""One rank's counts of an epoch's training part, and their reduction to the epoch's row."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from hpc_utils import device_share
from hpc_utils.provenance import cpu

from . import energy, memory
from .energy import EnergyMeter
from .ranks import Ranks
from .timing import PHASES, StepTime
from .turns import Turn
from .workload import UNITS, Finish, means

Usage = Counter  # seconds, and the values of `UsageMeter._read`


class UsageMeter:
    """Measures this rank's usage between `start` and `stop`."""

    def __init__(self, ranks: Ranks, meter: EnergyMeter) -> None:
        self._share = ranks.share
        self._energy = meter
        is_apart = ranks.ranks_per_node == 1 or ranks.cores  # no other rank uses this one's CPUs
        self._cpus = (ranks.cores or cpu.usable()) if psutil.LINUX and is_apart and not ranks.share else ()

    def start(self) -> None:
        self._before = self._read()
        self._begun = time.perf_counter()

    def stop(self) -> Usage:
        seconds = time.perf_counter() - self._begun
        used = self._read()
        used.subtract(self._before)
        return Usage({**used, "seconds": seconds})

    def _read(self) -> Usage:
        """Minor page faults, CPU time and throttled time of this process, energy of its device; on its CPUs, the time of other
        processes and that stolen by the hypervisor; NaN or absent: unknown."""
        used = Usage(
            page_faults=memory.minor_faults(),
            cpu_seconds=time.process_time(),
            throttled_seconds=device_share.throttled() if self._share else math.nan,
            energy_joules=self._energy.joules(),
        )
        if self._cpus:
            pids = [os.getpid(), *(worker.pid for worker in multiprocessing.active_children())]
            # User and system time, also of children that ended.
            used["outside_seconds"] = -sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in pids)
            cpu_times = psutil.cpu_times(percpu=True)
            for times in (cpu_times[number] for number in self._cpus):
                used["outside_seconds"] += times.user + times.nice + times.system
                used["steal_seconds"] += times.steal
        return used


@dataclass
class EpochStats:
    """One rank's counts of an epoch so far.

    Attributes:
        samples: samples trained on. usage: usage while the clock ran. paused: seconds paused for checkpoints.
        profiling: seconds paused while a profile was written.
        lr: learning rate of the last step. sums: loss and metrics, summed over samples (float64 scalars).
        steps: step times before the last restart. restarts: how often the epoch was resumed from a checkpoint.
        block: the steps since this run's last turn began, if it takes turns. blocks: those before it.
    """

    samples: int = 0
    usage: Usage = field(default_factory=Usage)
    paused: float = 0.0
    profiling: float = 0.0
    lr: float | None = None
    sums: dict[str, Tensor] = field(default_factory=dict)
    steps: list[StepTime] = field(default_factory=list)
    restarts: int = 0
    block: dict[str, Any] | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list)

    def begin_block(self, turn: Turn | None) -> None:
        """Count what follows as the block of `turn`, too."""
        if self.block:
            self.blocks.append(self.block)
        count = {"steps": 0, "samples": 0, "seconds": 0.0}
        self.block = turn and {"session": turn.session, "round": turn.round, "place": turn.place, **count}

    def add_usage(self, usage: Usage) -> None:
        self.usage.update(usage)
        if self.block:
            self.block["seconds"] += usage["seconds"]
            self.block["ended"] = time.time()

    def add_step(self, samples: int, loss: Tensor | float | None, lr: float | None, sums: dict) -> None:
        """Add one step; `loss` is the mean over its samples, `sums` are sums over them."""
        self.samples += samples
        self.lr = lr
        if self.block:
            self.block["steps"] += 1
            self.block["samples"] += samples
        if loss is not None:
            self._add("loss", _double(loss) * samples)
        for name, value in sums.items():
            self._add(name, _double(value))

    def _add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def state(self, steps: list[StepTime]) -> dict[str, Any]:
        """Return tensors and plain values for a checkpoint; `steps` are the steps since the last restart."""
        sums = {name: value.cpu() for name, value in self.sums.items()}
        steps = [(step.seconds, step.phases) for step in self.steps + steps]
        # A block that is not over is lost with the run.
        return vars(self) | {"usage": dict(self.usage), "sums": sums, "steps": steps, "block": None}

    @classmethod
    def continued(cls, state: dict[str, Any], device: torch.device) -> EpochStats:
        """Restore from `state`."""
        sums = {name: value.to(device) for name, value in state["sums"].items()}
        steps = [StepTime(*values) for values in state["steps"]]
        return cls(**state | {"usage": Usage(state["usage"]), "sums": sums, "steps": steps})


def _double(value: Tensor | float) -> Tensor:
    return torch.as_tensor(value).detach().double()  # a sum in bf16 would stop growing


def reduce(
    number: int, stats: EpochStats, ranks: Ranks, counter: str, finish: Finish
) -> tuple[dict[str, Any], list[list[StepTime]], list[dict[str, Any]]]:
    """Reduce epoch `number` over all ranks: on rank 0 its row, each rank's steps, and a row for each block of steps; elsewhere
    ({"epoch": number}, [], []).

    Args:
        counter: name of this rank's energy counter. finish: as of a `Workload`.
    """
    names = sorted(stats.sums)
    sums = torch.tensor([stats.samples, *(float(stats.sums[name]) for name in names)], dtype=torch.float64)
    samples, *sums = ranks.sum(sums).tolist()
    totals = dict(zip(names, sums, strict=True))
    everyone = ranks.gather((stats.usage, stats.paused, stats.profiling, stats.steps, stats.blocks, counter))
    if not everyone:
        return {"epoch": number}, [], []
    longest = max(usage["seconds"] for usage, *_ in everyone)
    times = [steps for *_, steps, _, _ in everyone]
    blocks = [
        {
            **block[0],
            "epoch": number,
            "samples": sum(part["samples"] for part in block),
            "seconds": max(part["seconds"] for part in block),
        }
        for block in zip(*(blocks for *_, blocks, _ in everyone), strict=True)
    ]
    row = {
        "epoch": number,
        "restarts": stats.restarts,
        "steps": len(stats.steps),
        "samples": int(samples),
        "padded_samples": 0,
        "units": totals.pop(UNITS, None),
        "seconds": longest,
        "ended": time.time(),
        "throughput": samples / longest,
        "checkpoint_seconds": max(paused for _, paused, *_ in everyone),
        "profile_seconds": max(profiling for _, _, profiling, *_ in everyone),
        "energy_joules": sum(energy.once((name, usage["energy_joules"]) for usage, *_, name in everyone)),
        "lr": stats.lr,
        **distribution([step for steps in times for step in steps]),
        **{f"train_{name}": value for name, value in means(totals, samples, finish).items()},
    }
    return row, times, blocks


def distribution(steps: list[StepTime]) -> dict[str, float]:
    """Step-time statistics over all ranks' steps, and mean phases of the sampled steps, in seconds."""
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
