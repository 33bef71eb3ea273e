"""What `test_strategies` starts under torchrun: a run for each strategy and each of its options, in one launch."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import torch.distributed as dist
from torch.distributed.tensor import DTensor

from hpc_utils import paths
from hpc_utils.config import RunConfig
from hpc_utils.train import Stopped, WorkloadError, loop, train
from hpc_utils.train.parallel import hooks

CNN = {"workload": "cnn", "epochs": 2, "steps_per_epoch": 6, "global_batch": 64, "eval_batch": 50, "lr": 0.3}
CNN |= {"save_weights": True}
OWN = CNN | {"workload": "tests.train.stacked:make", "global_batch": 16, "eval_batch": 10, "lr": 0.02}

RUNS = {
    "ddp": CNN,
    "small buckets": CNN | {"bucket_mb": 0.1},
    "copied buckets": CNN | {"gradient_as_bucket_view": False},
    "static graph": CNN | {"static_graph": True},
    "accumulated": CNN | {"accumulate": 4},
    "fp16 hook": CNN | {"comm_hook": "fp16"},
    "bf16 hook": CNN | {"comm_hook": "bf16"},
    "bf16 hook, accumulated": CNN | {"comm_hook": "bf16", "accumulate": 4},
    "zero1": CNN | {"parallel": "zero1"},
    "fsdp": CNN | {"parallel": "fsdp"},
    "fsdp, accumulated": CNN | {"parallel": "fsdp", "accumulate": 4},
    "powersgd": CNN | {"comm_hook": "powersgd", "epochs": 4, "steps_per_epoch": 20},
    "powersgd, small buckets": CNN | {"comm_hook": "powersgd", "bucket_mb": 0.05, "epochs": 4, "steps_per_epoch": 20},
    "fp16": CNN | {"precision": "fp16", "epochs": 1},
    "fp16 fsdp": CNN | {"precision": "fp16", "epochs": 1, "parallel": "fsdp"},
    "own": OWN,
    "own zero1": OWN | {"parallel": "zero1"},
    "own fsdp": OWN | {"parallel": "fsdp"},
    "own fsdp, recomputed": OWN | {"parallel": "fsdp", "activation_checkpointing": True},
}
RESUMED = {
    "ddp": OWN,
    "fp16 hook": OWN | {"comm_hook": "fp16", "accumulate": 2},
    "powersgd": OWN | {"comm_hook": "powersgd"},
    "zero1": OWN | {"parallel": "zero1"},
    "fsdp": OWN | {"parallel": "fsdp"},
    "fsdp, fp16": CNN | {"parallel": "fsdp", "precision": "fp16"},
    "fsdp, no momentum": CNN | {"parallel": "fsdp", "momentum": 0.0},
}
COLD = {"ddp": 0, "powersgd": 1, "zero1": 0, "fsdp": 0}  # warm-up steps
SCATTER = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"  # FSDP's
FIRST = loop.Trainer.train_on


class Watched(loop.Trainer):
    """Leaves what a test wants to know of a run."""

    told: ClassVar[dict[str, Any]] = {}

    def run(self) -> None:
        super().run()
        local = getattr(self.optimizer, "optim", self.optimizer)  # of ZeroRedundancyOptimizer: this rank's own
        state = [value for own in local.state.values() for value in own.values() if hasattr(value, "numel")]
        own = [value.to_local() if isinstance(value, DTensor) else value for value in state]
        weights = [p.to_local() if isinstance(p, DTensor) else p for p in self.model.parameters()]
        self.told |= {"state": sum(t.numel() for t in own), "weights": sum(t.numel() for t in weights)}


def main() -> None:
    rank, out = int(os.environ["RANK"]), paths.results()
    told: dict[str, Any] = {}
    reduced: list[str] = []

    def counted(truly: Callable) -> Callable:
        return functools.wraps(truly)(lambda *given, **more: reduced.append(truly.__name__) or truly(*given, **more))

    with (
        mock.patch.object(hooks, "bf16_on_host", counted(hooks.bf16_on_host)),
        mock.patch.object(dist, SCATTER, counted(getattr(dist, SCATTER))),
        mock.patch.object(loop, "Trainer", Watched),
    ):
        for name, parameters in RUNS.items():
            reduced.clear()
            path = train(RunConfig(**parameters)).path.name
            told[name] = {"run": path, "reduced": len(reduced), **Watched.told}
    for name, steps in COLD.items():
        told[f"cold {name}"] = {"run": train(RunConfig(**RESUMED[name], warmup_steps=steps)).path.name}
    for name, parameters in RESUMED.items():
        told[f"straight {name}"] = {"run": train(RunConfig(**parameters, repeat=2)).path.name}
        told[f"resumed {name}"] = {"run": stopped_and_resumed(RunConfig(**parameters, repeat=3))}
    try:
        train(RunConfig(**OWN | {"workload": "tests.train.stacked:stubborn", "parallel": "zero1"}))
    except WorkloadError as error:
        told["stubborn"] = str(error)
    (out / f"told.rank{rank}.json").write_text(json.dumps(told))


def stopped_and_resumed(config: RunConfig) -> str:
    """Stopped after the eighth step, within the second epoch, and continued; the run's name."""

    def step(self: loop.Trainer, *batch: Any) -> None:
        FIRST(self, *batch)
        if self.steps_done == 7:
            os.kill(os.getpid(), signal.SIGUSR1)

    with mock.patch.object(loop.Trainer, "train_on", step):
        try:
            train(config)
        except Stopped:
            dist.destroy_process_group()  # all have left it in order
        else:
            raise AssertionError("it was not stopped")
    return train(config).path.name


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main()
    sys.stdout.flush()
    os._exit(0)
