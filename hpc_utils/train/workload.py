"""The workload protocol: model, data, loss and metrics; or a loop of its own. `vision` has the built-in workloads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from signal import Signals
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hpc_utils.config import RunConfig

from . import optim

if TYPE_CHECKING:
    from .ranks import Ranks
    from .recorder import Recorder

Batch = tuple[Any, Any]


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
        metrics: name -> function (outputs, targets) -> *sum* over the batch, a scalar tensor.
        forward: (model, inputs) -> outputs, for models that take more than one tensor.
        collate: collate function of a DataLoader, for map-style data sets.
        optimizer: (model, configuration, peak learning rate) -> optimizer; by default built from the configuration.

    Raises:
        WorkloadError: a data set has no length or no samples, `model` is a module, or a metric has a reserved name.
    """

    model: Callable[[], nn.Module]
    train: Any
    test: Any
    loss: Callable[[Any, Any], Tensor]
    metrics: Mapping[str, Callable[[Any, Any], Tensor]] = field(default_factory=dict)
    forward: Callable[[nn.Module, Any], Any] = lambda model, inputs: model(inputs)
    collate: Callable[[list], Batch] | None = None
    optimizer: Callable[[nn.Module, RunConfig, float], torch.optim.Optimizer] = optim.build

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            if not isinstance(data := getattr(self, name), Sized):
                raise WorkloadError(f"{name} is {data!r}; expected a data set with a length")
            if not len(data):
                raise WorkloadError(f"{name} is empty; expected a data set with samples")
        if isinstance(self.model, nn.Module):
            raise WorkloadError("model is a module; expected a function that builds one: `lambda: ...`")
        if reserved := {"loss", "lr", "samples"} & self.metrics.keys():
            raise WorkloadError(f"metrics: {', '.join(sorted(reserved))} is recorded already: use another name")


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


def batch_size(targets: Any) -> int:
    """Samples in a batch: the first dimension of the targets, or of the first tensor in them."""
    while not isinstance(targets, Tensor):
        targets = next(iter(targets.values() if isinstance(targets, dict) else targets))
    return len(targets)


def correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """Count correct predictions of a batch (B, classes): the metric `accuracy`."""
    return (outputs.argmax(1) == targets).sum()
