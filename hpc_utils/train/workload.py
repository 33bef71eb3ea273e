"""The workload protocol: model, data, loss and metrics; or a loop of its own. `vision` has the built-in workloads."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from signal import Signals
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import IterableDataset

from hpc_utils.config import RunConfig

from . import optim

if TYPE_CHECKING:
    from .ranks import Ranks
    from .recorder import Recorder

Batch = tuple[Any, Any]
Finish = Mapping[str, Callable[[float], float]]
COUNT = "/count"  # ends the name of a metric's second sum
UNITS = "units"  # the sum of `Workload.count`


class WorkloadError(ValueError):
    """A workload was not found or is invalid."""

    exit_code = 2


@runtime_checkable
class ArraySource(Protocol):
    """A data set that makes whole batches."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor, epoch: int, device: torch.device) -> Batch:
        """Return (inputs, targets) of the samples `indices` (int64, B) on `device`, augmented for `epoch`."""
        ...


@dataclass(frozen=True)
class Workload:
    """Model, data, loss and metrics.

    Attributes:
        model: builds the model; called once on every rank under the run's seed.
        train, test: map-style data sets of (input, target) samples, or `ArraySource`s.
        loss: (outputs, targets) -> mean loss over the batch, a scalar.
        metrics: name -> function (outputs, targets) -> *sum* over the batch, a scalar, of which the mean over samples is recorded;
            or two sums (value, count), of which the quotient is recorded, as of correct tokens and tokens.
        finish: name of a metric -> function of its mean, whose result is recorded instead: `math.exp` for a perplexity.
        forward: (model, inputs) -> outputs, for models that take more than one tensor.
        collate: collate function of a DataLoader, for map-style data sets; returns (inputs, targets).
        optimizer: (model, configuration, peak learning rate) -> optimizer, or a list of them for different parameters; by default
            built from the configuration. The rates of its groups are their peaks.
        schedule: (step from 0, steps of the run, steps per epoch, configuration) -> share of the peak learning rate.
        unit, count: what a batch has besides samples, such as "tokens", and (inputs, targets) -> how many, padding apart.

    Raises:
        WorkloadError: a data set has no length, no samples or no order, `model` is a module, or a metric is misnamed.
    """

    model: Callable[[], nn.Module]
    train: Any
    test: Any
    loss: Callable[[Any, Any], Tensor]
    metrics: Mapping[str, Callable[[Any, Any], Tensor]] = field(default_factory=dict)
    forward: Callable[[nn.Module, Any], Any] = lambda model, inputs: model(inputs)
    collate: Callable[[list], Batch] | None = None
    optimizer: Callable[[nn.Module, RunConfig, float], Optimizer | Sequence[Optimizer]] = optim.build
    schedule: Callable[[int, int, int, RunConfig], float] = optim.lr_factor
    finish: Finish = field(default_factory=dict)
    unit: str = ""
    count: Callable[[Any, Any], Tensor | int] | None = None

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            if not isinstance(data := getattr(self, name), Sized):
                raise WorkloadError(f"{name} is {data!r}; expected a data set with a length")
            if not len(data):
                raise WorkloadError(f"{name} is empty; expected a data set with samples")
            if isinstance(data, IterableDataset) or not (
                hasattr(data, "__getitem__") or isinstance(data, ArraySource)
            ):
                raise WorkloadError(
                    f"{name} is a {type(data).__name__}, which only iterates: it cannot give any sample by its number, and so not "
                    "the same samples on any number of ranks and after a restart; expected a map-style data set (`__getitem__`)"
                )
        if isinstance(self.model, nn.Module):
            raise WorkloadError("model is a module; expected a function that builds one: `lambda: ...`")
        if reserved := {"loss", "lr", "samples", UNITS} & self.metrics.keys():
            raise WorkloadError(f"metrics: {', '.join(sorted(reserved))} is recorded already: use another name")
        if unknown := self.finish.keys() - self.metrics.keys():
            raise WorkloadError(f"finish: {', '.join(sorted(unknown))} is not among the metrics")
        if bool(self.unit) != bool(self.count):
            raise WorkloadError("unit and count belong together: what is counted, and how many a batch has")

    def sums(self, outputs: Any, targets: Any) -> dict[str, Any]:
        """The metrics' sums over a batch; of two sums the second under its name and `COUNT`."""
        sums = {}
        for name, metric in self.metrics.items():
            value = metric(outputs, targets)
            if isinstance(value, tuple | list):
                if len(value) != 2:
                    raise WorkloadError(
                        f"the metric `{name}` gives {len(value)} values; expected a sum, or (value, count)"
                    )
                value, sums[name + COUNT] = value
            sums[name] = value
        return sums

    def optimizers(self, model: nn.Module, config: RunConfig, peak_lr: float) -> list[Optimizer]:
        """What `optimizer` returns, as a list.

        Raises:
            WorkloadError: it holds anything else than optimizers, or not each trained parameter of the model once.
        """
        built = self.optimizer(model, config, peak_lr)
        optimizers = list(built) if isinstance(built, list | tuple) else [built]
        if strange := [value for value in optimizers if not isinstance(value, Optimizer)]:
            raise WorkloadError(
                f"optimizer returned {strange[0]!r:.80}; expected a torch.optim.Optimizer, or a list of them"
            )
        optimized = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
        once = set(optimized)
        if len(once) < len(optimized) or not once <= {id(p) for p in model.parameters()}:
            raise WorkloadError("optimizer: a parameter is in two groups, or is none of the model's")
        left_out = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in once]
        if left_out:
            names = ", ".join(left_out[:3]) + ", ..." * (len(left_out) > 3)
            raise WorkloadError(
                f"optimizer: parameters in no group: {names}; set requires_grad=False for what is not trained"
            )
        return optimizers

    def rate(self, step: int, steps: int, steps_per_epoch: int, config: RunConfig) -> float:
        """The share of the peak learning rate at `step`.

        Raises:
            WorkloadError: it is no finite number from 0 on.
        """
        share = self.schedule(step, steps, steps_per_epoch, config)
        if not (isinstance(share, int | float) and 0 <= share < math.inf):
            raise WorkloadError(
                f"the schedule gives {share!r} at step {step} of {steps}; expected a share of the peak rate"
            )
        return share


class Loop(ABC):
    """A workload that trains by itself, as a library outside torch does: `module:Class`, a subclass of this.

    It is created with `workload_args`, and with the configuration if it takes `config`.

    Attributes:
        options: those of `RunConfig` that it uses. Another value than the default of any other is refused.
        launcher: `module:Class` of a `hpc_utils.launcher.Launcher`, written as text, if its ranks start or meet in a way of their
            own; it then needs `parallel=own`.
    """

    options: ClassVar[frozenset[str]]
    launcher: ClassVar[str] = ""

    @abstractmethod
    def run(self, ranks: Ranks, recorder: Recorder, received: Sequence[Signals]) -> None:
        """Train inside `recorder`; `received` has the signals so far, and grows."""


def means(sums: Mapping[str, float], samples: float, finish: Finish) -> dict[str, float]:
    """Loss and metrics from `sums` (as of `Workload.sums`) over `samples`; NaN where nothing was counted.

    Raises:
        WorkloadError: the exponential of a mean overflows, as that of a diverged loss does.
    """
    values = {}
    for name, total in sums.items():
        if name.endswith(COUNT):
            continue
        count = sums.get(name + COUNT, samples)
        mean = total / count if count else math.nan
        try:
            values[name] = finish.get(name, float)(mean)
        except OverflowError:
            raise WorkloadError(
                f"the metric {name} overflows: its mean before `finish` is {mean:.4g}; the training diverges: try a smaller lr or "
                "a longer warm-up"
            ) from None
    return values


def correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """Count correct predictions of a batch (B, classes): the metric `accuracy`."""
    return (outputs.argmax(1) == targets).sum()
