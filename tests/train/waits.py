"""A compute profile of `cnn`, made up: what the tests of the emulated device wait by."""

from __future__ import annotations

from typing import Any

from hpc_utils.config import RunConfig
from hpc_utils.records import probes
from hpc_utils.records.compute_profile import computed
from hpc_utils.train.resolve import resolve

# Not the order in which autograd would come to them by itself, nor that of the model.
READY = [("2.weight", 0.1), ("2.bias", 0.12), ("8.bias", 0.2), ("8.weight", 0.3), ("0.bias", 0.5), ("0.weight", 0.5)]
READY += [("6.weight", 0.8), ("6.bias", 0.9)]
SECONDS = {"data": 0.01, "forward": 0.03, "backward": 0.08, "optimizer": 0.02}
BRIEF = {"workload": "cnn", "device": "emulated", "evaluate_every": 0, "epochs": 1, "steps_per_epoch": 4}
BRIEF |= {"warmup_steps": 1, "phase_every": 1, "lr_warmup_epochs": 0, "batch_per_device": 16, "dilation": 2}


def keep(ready: list[tuple[str, float]] = READY, **changes: Any) -> str:
    """A profile of `cnn`, as `hpc bench compute` would leave it; its name."""
    real = resolve(RunConfig(workload="cnn")).model()
    sizes = {name: parameter.nbytes for name, parameter in real.named_parameters()}
    record = computed(RunConfig(workload="cnn")) | {
        "hardware_id": "0123abcd", "threads_per_rank": 1, "device": "cpu", "device_name": "Slow", "provenance": {},
        "gradient_bytes": sum(sizes.values()),
        "batches": [
            {"batch": batch, **{phase: [scale * t, 9.0, scale * t, 0.0, scale * t] for phase, t in SECONDS.items()}}
            for batch, scale in ((8, 0.5), (32, 2.0))
        ],
        "ready": [{"name": name, "bytes": sizes[name], "fraction": fraction} for name, fraction in ready],
    }  # fmt: skip
    return probes.keep("compute", "slow", record | changes).stem
