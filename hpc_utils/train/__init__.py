"""The trainer, and the recorder that also works around a user's own loop. Independent of Jupyter and Slurm.

train(RunConfig(workload="resnet18", dataset="cifar10"))      one process
torchrun --nproc-per-node 2 -m hpc_utils.train epochs=3       two ranks

`run` sets a run up, and `loop` runs the training. It calls `checkpoint_policy` to decide when to checkpoint or stop, and `recorder` to time and
write each step. Memory, energy, profiler, monitor and progress are observers of the recorder (`observer`).
"""

from hpc_utils.signals import Stopped

from .checkpoint import CheckpointError
from .recorder import NonFiniteLoss, Recorder
from .run import Result, train
from .workload import Workload, WorkloadError
