"""Training: ours or the user's, timed and recorded. Knows neither Jupyter nor Slurm.

train(RunConfig(workload="resnet18", dataset="cifar10"))      one process, here and now
torchrun --nproc-per-node 2 -m hpc_utils.train epochs=3       the same on two ranks
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
