"""Training: ours or the user's, timed and recorded. Knows neither Jupyter nor Slurm.

train(RunConfig(workload="resnet18", dataset="cifar10"))      one process, here and now
torchrun --nproc-per-node 2 -m hpc_utils.train epochs=3       the same on two ranks

`loop` owns a run: it asks `checkpoint_policy` when to checkpoint or stop, and hands each step to `recorder`, which times
and writes. Memory, energy, profiler, monitor and progress watch the recorder's steps (`observer`).
"""

from hpc_utils.signals import Stopped

from .checkpoint import CheckpointError
from .loop import NonFiniteLoss, Result, train
from .recorder import Recorder
from .workload import Workload, WorkloadError

__all__ = [
    "CheckpointError",
    "NonFiniteLoss",
    "Recorder",
    "Result",
    "Stopped",
    "Workload",
    "WorkloadError",
    "train",
]
