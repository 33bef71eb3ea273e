"""What `test_two_ranks` starts under torchrun: many runs in one launch, as a launch costs seconds.

Every rank leaves its weights and what it saw in the folder of the results.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpc_utils import paths
from hpc_utils.config import RunConfig
from hpc_utils.provenance import core_groups
from hpc_utils.train import Recorder, train
from tests.train.support import BRIEF, fit

STRONG = {"workload": "cnn", "epochs": 2, "global_batch": 128, "eval_batch": 50, "lr": 0.2, "phase_every": 3}
WEAK = STRONG | {"global_batch": None, "batch_per_device": 64}


def main() -> None:
    rank, out = int(os.environ["RANK"]), paths.results()
    told: dict[str, object] = {}

    def run(name: str, parameters: dict) -> None:
        result, weights = fit(**parameters)
        told[name] = result.path.name
        torch.save(weights, out / f"{name}.rank{rank}.pt")

    run("strong", STRONG)
    told["complete already"] = train(RunConfig(**WEAK)).path.name
    run("weak", WEAK)
    cores, threads = len(core_groups()), torch.get_num_threads()
    run("crowded", BRIEF | {"threads_per_rank": cores})
    told["restored"] = len(core_groups()) == cores and torch.get_num_threads() == threads
    run("compiled", BRIEF | {"compile": "default", "warmup_steps": 1, "loader": "device"})
    run("counted", {"workload": "counted:make", "epochs": 1, "global_batch": 8, "eval_batch": 2})
    run("slow", {"workload": "counted:slow", "epochs": 1, "global_batch": 8, "evaluate_every": 0, "warmup_steps": 0})
    dist.init_process_group("gloo")
    told["foreign"], weights = foreign(rank)
    torch.save(weights, out / f"foreign.rank{rank}.pt")
    told["uneven"] = uneven(rank)
    told["late"] = late(rank)
    dist.destroy_process_group()
    (out / f"told.rank{rank}.json").write_text(json.dumps(told))


def foreign(rank: int) -> tuple[str, dict]:
    """Somebody's own loop with DDP and a DataLoader."""
    torch.manual_seed(0)
    points = torch.randn(48, 4)
    data = torch.utils.data.TensorDataset(points, (points.sum(1) > 0).long())
    sampler = torch.utils.data.DistributedSampler(data, seed=1)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder("mine", global_batch=8, parameters={"lr": 0.1}) as run:
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in run.epoch(loader):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(samples=len(x), loss=loss)
            run.note(test_loss=float(epoch))
    return run.path.name, model.state_dict()


def uneven(rank: int) -> str:
    """A loop that waits for nobody, slow on rank 1 only: T is rank 1's."""
    with Recorder("uneven", global_batch=4) as run:
        for _ in run.epoch(range(3)):
            time.sleep(0.2 * rank)
            run.step(samples=2)
    return run.path.name


def late(rank: int) -> str:
    """Rank 0 is kept busy before the epoch, in which each step waits for all: T begins when both are there."""
    with Recorder("late", global_batch=4) as run:
        time.sleep(0.6 * (rank == 0))
        for _ in run.epoch(range(3)):
            dist.all_reduce(torch.zeros(1))
            run.step(samples=2)
    return run.path.name


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main()
