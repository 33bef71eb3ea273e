"""`workload=companions.mpi.horovod:Horovod`: Horovod's data parallelism (Sergeev and Del Balso 2018, arXiv:1802.05799), over its own
gloo or NCCL, of a network of ours.

`make horovod` builds it into an environment of its own, which the ranks use beside theirs.
"""

from __future__ import annotations

import os
import site
import time
from collections.abc import Callable, Sequence
from signal import Signals
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from hpc_utils import workspace
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.train import Recorder, WorkloadError
from hpc_utils.train.loop import Trainer
from hpc_utils.train.parallel.strategy import Strategy
from hpc_utils.train.ranks import Ranks
from hpc_utils.train.workload import Loop

from . import launcher

UNUSED = {
    "comm_hook",
    "static_graph",
    "gradient_as_bucket_view",
    "bucket_mb",
    "step_graph",
    "accumulate",
    "clip_norm",
}


class Horovod(Loop):
    """A built-in network (`model`) on a data set of the catalogue, whose gradients Horovod averages.

    Raises:
        WorkloadError: the precision needs loss scaling.
    """

    launcher = "companions.mpi.launcher:Horovod"
    options = frozenset(RunConfig.model_fields.keys() | {"source"}) - UNUSED

    def __init__(
        self, config: RunConfig, model: str = "mnist_cnn", dataset: str = "mnist", augment: bool = False
    ) -> None:
        if config.precision in ("fp16", "amp"):
            raise WorkloadError(
                "Horovod reduces gradients that fp16's loss scaling has not checked: use precision=bf16 or fp32"
            )
        trained = {"workload": model, "workload_args": {}, "dataset": dataset, "augment": augment}
        self.config = config.model_copy(update=trained)

    def run(self, ranks: Ranks, recorder: Recorder, received: Sequence[Signals]) -> None:
        HorovodTrainer(self.config, ranks, recorder, received).run()


class HorovodTrainer(Trainer):
    """A trainer whose gradients Horovod averages."""

    def _new_strategy(self) -> HorovodStrategy:
        return HorovodStrategy(self.model, self.config, self.ranks)


class HorovodStrategy(Strategy):
    """Horovod's DistributedOptimizer, which averages gradients from hooks of the backward pass.

    Its timeline needs a file and a switch for each run. What a step waits for is timed here: `synchronize`, which the optimizer's step calls.
    """

    def wrap(self) -> nn.Module:
        self._horovod = _started(self.ranks)
        self._optimizer: Optimizer | None = None
        self._waited = 0.0
        self._steps = 0
        self.model.to(memory_format=torch.contiguous_format)  # it refuses others; activations keep theirs
        self._horovod.broadcast_parameters(self.model.state_dict(), root_rank=0)
        return self.model

    def optimizer(self, template: Optimizer) -> Optimizer:
        """Return Horovod's optimizer; a second call resets the first one's, whose hooks cannot be removed."""
        if self._optimizer is None:
            self._optimizer = self._horovod.DistributedOptimizer(template, self.model.named_parameters())
            self._optimizer.synchronize = self._timed(self._optimizer.synchronize)
        else:
            self._optimizer.load_state_dict(template.state_dict())
        return self._optimizer

    def counters(self) -> dict[str, float]:
        """Seconds per step that rank 0 waits for reduced gradients after the backward pass, since the last call."""
        waited, steps = self._waited, self._steps
        self._waited, self._steps = 0.0, 0
        return {"comm_seconds": waited / steps, "overlap_seconds": 0.0} if steps and self.ranks.world_size > 1 else {}

    def put_back(self, kept: Any) -> None:
        super().put_back(kept)
        self.counters()

    def close(self) -> None:
        self._horovod.shutdown()

    def _timed(self, synchronize: Callable[[], None]) -> Callable[[], None]:
        def timed() -> None:
            begun = time.perf_counter()
            synchronize()
            self._waited += time.perf_counter() - begun
            self._steps += 1

        return timed


def _started(ranks: Ranks) -> Any:
    """Start Horovod on the ranks of torch's process group, whose rank 0 also serves its rendezvous."""
    if why := launcher.Horovod().refusal():
        raise ConfigError(why)
    site.addsitedir(str(launcher.horovod_packages()))
    import horovod.torch
    from horovod.runner.http.http_server import RendezvousServer

    port = None
    if ranks.is_main:
        server = RendezvousServer()
        port = server.start()  # a daemon thread
        server.init([])
    here = workspace.environment()
    address = here.get("MASTER_ADDR", "127.0.0.1")
    facts = {
        "RANK": ranks.rank, "SIZE": ranks.world_size,
        "LOCAL_RANK": ranks.local_rank, "LOCAL_SIZE": ranks.ranks_per_node,
        "CROSS_RANK": ranks.rank // ranks.ranks_per_node, "CROSS_SIZE": ranks.nodes,
        "HOSTNAME": ranks.rank // ranks.ranks_per_node,
        "CONTROLLER": "gloo", "CPU_OPERATIONS": "gloo",
        "GLOO_RENDEZVOUS_ADDR": address, "GLOO_RENDEZVOUS_PORT": ranks.broadcast(port),
    }  # fmt: skip
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in facts.items()})
    os.environ.setdefault("HOROVOD_GLOO_IFACE", here.get("GLOO_SOCKET_IFNAME") or ("lo" if ranks.nodes == 1 else ""))
    horovod.torch.init()
    return horovod.torch
