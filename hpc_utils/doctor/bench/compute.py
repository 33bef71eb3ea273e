"""What a model costs on one device: each phase of a step at several batch sizes, and when its gradients are ready.

The trainer's own step is timed, on one rank without a process group, pinned as the trainer pins. A captured step
(`step_graph`) has neither phases nor gradients that are seen on the host: only its whole time is measured.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from hpc_utils import provenance, source_code
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.doctor.process import LoadMeter
from hpc_utils.records import probes
from hpc_utils.records.compute_profile import KIND, computed, not_plain
from hpc_utils.train import compilation, precision
from hpc_utils.train.loop import Trainer
from hpc_utils.train.ranks import Ranks, setup
from hpc_utils.train.sampler import Sampler
from hpc_utils.train.timing import StepClock

T = TypeVar("T")
WARM_UP = 2  # steps of each batch size, in which kernels are chosen and memory is allocated
SETTLE = 1  # steps after another batch size, whose data fill the caches
REPLAYS = 20  # whose mean is one measurement of a captured step


def profile(config: RunConfig, batches: Sequence[int], repeats: int, tell: Callable[[str], None]) -> Path:
    """Measure `repeats` steps at each of `batches`, interleaved, as a rank in this process; write the record; its path.

    Args:
        config: what is computed; the number of epochs and the layout do not matter.
        tell: called with a line after each repeat.

    Raises:
        ConfigError: there is nothing to compute, or no batch to compute it on.
        DataError: the data set is not here.
    """
    if turned := not_plain(config):
        raise ConfigError(f"{', '.join(turned)}: a compute profile is of the plain step")
    batches = sorted(set(batches))
    if not batches or batches[0] < 1:
        raise ConfigError(f"batches {batches}: a step has at least one sample")
    single_device = {"parallel": "none", "global_batch": max(batches), "batch_per_device": None}
    config = config.model_copy(update=single_device | {"evaluate_every": 0, "link_gbit": None})
    with (
        setup(config) as ranks,
        precision.matmul_precision(config.precision, deterministic=config.deterministic),
        contextlib.ExitStack() as captured,
        tempfile.TemporaryDirectory(prefix="hpc-compute-") as folder,
    ):
        config = config.model_copy(update={"precision": precision.supported(config.precision, ranks.device)})
        compilation.require(config, ranks.device)
        stopwatch = Stopwatch(ranks, Path(folder))
        trainer = Trainer(config, ranks, stopwatch)
        trainer.model.train()
        weights = {name: weight for name, weight in trainer.model.named_parameters() if weight.requires_grad}
        for name, weight in weights.items() if not config.step_graph else ():
            weight.register_post_accumulate_grad_hook(lambda _, name=name: stopwatch.ready(name))
        for batch in batches:
            _steps(trainer, stopwatch, batch, WARM_UP)
        graphs = {}
        for batch in batches if config.step_graph else ():
            trainer.capture(next(trainer.loader.parts(_indices(trainer, batch, 1), epoch=1)))
            graphs[batch] = trainer.graph
            captured.callback(trainer.graph.close)
        times: dict[int, dict[str, list[float]]] = {batch: defaultdict(list) for batch in batches}
        fractions: dict[str, list[float]] = defaultdict(list)
        meter = LoadMeter(ranks)
        for number in range(1, repeats + 1):
            for batch in batches:
                if graphs:
                    trainer.graph = graphs[batch]
                    _steps(trainer, stopwatch, batch, SETTLE + REPLAYS)
                    times[batch]["step"].append(statistics.mean(t.seconds for t in stopwatch.finish()[SETTLE:]))
                    continue
                _steps(trainer, stopwatch, batch, SETTLE + 1)
                for phase, seconds in stopwatch.finish()[-1].phases.items():
                    times[batch][phase].append(seconds)
                for name, fraction in stopwatch.fractions():
                    fractions[name].append(fraction)
            tell(f"repeat {number} of {repeats}")
        meter.warn(tell)
        ready = [
            {"name": name, "bytes": weights[name].nbytes, "fraction": statistics.median(weight_fractions)}
            for name, weight_fractions in fractions.items()
        ]
        hardware = provenance.hardware_id()
        record = computed(config) | {
            "hardware_id": provenance.HardwareId.parse(hardware).machine or hardware,
            "threads_per_rank": ranks.cores_per_device,
            "device": ranks.device_kind,
            "device_name": ranks.device_name,
            "parameters": stopwatch.facts["parameters"],
            "gradient_bytes": sum(weight.nbytes for weight in weights.values()),
            "batches": [{"batch": batch, **phase_times} for batch, phase_times in times.items()],
            "ready": sorted(ready, key=itemgetter("fraction")),
            "provenance": provenance.collect(source_code.files(config.workload)),
        }
    name = [
        config.workload,
        record["dataset"],
        config.precision,
        "" if config.compile == "off" else config.compile,
        "step-graph" if config.step_graph else "",
        f"t{record['threads_per_rank']:g}",
        record["hardware_id"],
    ]
    return probes.keep(KIND, "-".join(filter(None, name)), record)


def _steps(trainer: Trainer, stopwatch: Stopwatch, batch: int, count: int) -> None:
    load = trainer.loader.parts if trainer.graph else trainer.loader.batches
    for part in stopwatch.epoch(load(_indices(trainer, batch, count), epoch=1)):
        trainer.train_on(*part)
    trainer.ranks.synchronize()


def _indices(trainer: Trainer, batch: int, count: int) -> Iterator[Tensor]:
    return Sampler(len(trainer.workload.train), batch, steps=count).epoch(1)


class Stopwatch(StepClock):
    """Times the trainer's steps where a `Recorder` would record them, and when each gradient is ready."""

    waited = 0.0  # for turns: it takes none

    def __init__(self, ranks: Ranks, path: Path) -> None:
        super().__init__(ranks.device, phase_every=1)
        self.path, self.facts = path, {}
        self._ready: list[tuple[str, object]] = []

    def expect(self, epochs: int, steps: int, *, done: int = 0) -> None:
        """No progress is shown."""

    def remark(self, text: str) -> None:
        print(text, flush=True)

    def epoch(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches`, the wait for each timed."""
        self.start()
        for batch in batches:
            self._ready = []
            self.lap("data")
            yield batch

    def step(self, **_: Any) -> None:
        super().step()

    def ready(self, name: str) -> None:
        """The gradient of the parameter `name` is complete."""
        self._ready.append((name, self._now()))

    def fractions(self) -> list[tuple[str, float]]:
        """(parameter, fraction of the backward pass gone) of the last step."""
        marks = dict(self._steps[-1])
        begun = marks["forward"]
        duration = self._between(begun, marks["backward"])
        return [(name, self._between(begun, mark) / duration) for name, mark in self._ready]
