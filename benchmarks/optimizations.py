"""The plain loop, each optimisation of it, and ours: images a second, percentiles of steps, and their floor.

The small CNN on the digits (batch 128, 300 steps) and ResNet-18 on CIFAR-10 (batch 64, 8 steps; on a GPU batch 512, 97 steps),
all cores as one device, after warm-up steps; 5 rounds in alternation, each side in a fresh process. First each
optimisation alone: one that makes a faster computation shows nothing behind a loader that is the limit. Then all of
them together but those that alone made the loop slower, in the plain loop and in ours. On a CPU torch's default is
fp32 as well: that side is the same program, and shows the noise.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hpc_utils import datasets
from hpc_utils.analyze.peaks import Peak
from hpc_utils.launch.place import Place

from . import ceilings, measure
from .sides import Case, Timing, ours, plain

# Enough steps for a steady number: on a CPU ResNet-18 takes about half a second for each of its.
ON_CPU = (Case("cnn", "digits", 128, 300, 10), Case("resnet18", "cifar10", 64, 8, 2))
ON_GPU = (Case("cnn", "digits", 128, 1000, 50), Case("resnet18", "cifar10", 512, 97, 10))
SMOKE = (Case("cnn", "digits", 128, 4, 2),)

PLAIN, OURS = "plain loop, fp32", "ours, default"
SLOWER = 0.97  # alone, of the plain loop: such an optimisation is left out of the best
COSTS = 0.97  # what is promised: ours at its best, of the plain loop with the same optimisations

Side = Callable[[], Timing]


@dataclass(frozen=True)
class Optimization:
    """What the plain loop is given, and the knobs that ask ours for the same; None: ours has no such loader."""

    name: str
    plain: Mapping[str, str | int]
    ours: Mapping[str, str | int] | None = field(default=None)


def optimizations(gpu: bool, workers: int, compiled: bool) -> Iterator[Optimization]:
    """Those that this device may profit from; of two that exclude each other, the later wins where all are combined."""
    if gpu:
        yield Optimization("TF32", {"precision": "tf32"}, {"precision": "tf32"})
    if why := Place.here().refusal(1, "bf16", "auto"):
        print(f"left out: {why}", file=sys.stderr)
    else:
        yield Optimization("bf16", {"precision": "bf16"}, {"precision": "bf16"})
    yield Optimization("channels_last", {"channels_last": 1}, {"channels_last": "true"})
    yield Optimization("fused SGD", {"fused": 1}, {"fused_optimizer": "true"})
    if compiled:
        mode = "reduce-overhead" if gpu else "default"
        yield Optimization(f"compile ({mode})", {"compile": mode}, {"compile": mode})
    yield Optimization("transforms v2", {"data": "v2"})
    plural = "worker" if workers == 1 else "workers"
    yield Optimization(f"{workers} {plural}{', pinned' if gpu else ''}", {"workers": workers, "pinned": int(gpu)})
    yield Optimization("batches on the device", {"data": "device", "workers": 0, "pinned": 0}, {"loader": "device"})


def run(options: measure.Options) -> Iterator[measure.Row]:
    """All cases on this machine's device, a GPU if there is one."""
    import torch

    gpu = torch.cuda.is_available()
    # On a CPU one worker shares the cores with the computation; a GPU leaves them to the loader.
    workers = min(8, max(1, options.threads - 1)) if gpu else 1
    known = list(optimizations(gpu, workers, gpu if options.compile is None else options.compile))
    ceiling, rows = ceilings.measured(options)
    yield from rows
    for case in SMOKE if options.quick else ON_GPU if gpu else ON_CPU:
        try:
            datasets.load(case.dataset, "train")
        except datasets.DataError as error:
            print(f"skipped {case.name}: {error} (`hpc data fetch {case.dataset}`)", file=sys.stderr)
            continue
        yield from Comparison(case, gpu, ceiling, options).rows(known)


@dataclass(frozen=True)
class Comparison:
    """One case: its sides, measured in two alternations, each with the plain loop as its reference."""

    case: Case
    gpu: bool
    ceiling: Peak
    options: measure.Options

    def rows(self, known: list[Optimization]) -> Iterator[measure.Row]:
        """Each of `known` alone; then those together that alone did not make the plain loop slower."""
        alone = {PLAIN: self._plain(), "torch's default": self._plain(precision="default")}
        alone |= {f"+ {one.name}": self._plain(**one.plain) for one in known}
        formats = {name: "fp32" for name in alone} | {f"+ {one.name}": _format(one.plain) for one in known}
        formats["torch's default"] = "tf32" if self.gpu else "fp32"
        values = self._measured("each alone", alone)
        yield from self._shown("each alone", values, formats)
        best = [one for one in known if self._ratio(values[f"+ {one.name}"], values[PLAIN]) >= SLOWER]
        yield from self._together(best)

    def _together(self, best: list[Optimization]) -> Iterator[measure.Row]:
        by_hand = _combined(one.plain for one in best)
        knobs = {"channels_last": "false"} | _combined(one.ours or {} for one in best)
        everything = f"plain loop, {', '.join(_effective(best))}"
        ours_best = f"ours, {', '.join(f'{name}={value}' for name, value in knobs.items())}"
        sides = {
            PLAIN: self._plain(),
            everything: self._plain(**by_hand),
            OURS: functools.partial(ours, self.case, self.options.threads),
            ours_best: functools.partial(ours, self.case, self.options.threads, **knobs),
        }
        formats = {PLAIN: "fp32", everything: _format(by_hand), OURS: "fp32", ours_best: _format(knobs)}
        values = self._measured("together", sides)
        promises = {
            OURS: (PLAIN, "at least as fast as the plain loop", 1.0),
            ours_best: (everything, "nearly as fast as the plain loop with the same by hand", COSTS),
        }
        for row in self._shown("together", values, formats):
            if row.variant in promises and row.unit == "images/s":
                reference, text, least = promises[row.variant]
                ratio = self._ratio(values[row.variant], values[reference])
                row = row.promised(f"{text} ({ratio:.3g}, at least {least:g})", ratio >= least)
            yield row

    def _plain(self, **changes: str | int) -> Side:
        return functools.partial(plain, self.case, self.options.threads, **changes)

    def _measured(self, about: str, sides: Mapping[str, Side]) -> dict[str, list[Timing]]:
        return measure.alternate(f"{self.case.name}, {about}", sides, self.options)

    def _shown(
        self, about: str, values: Mapping[str, list[Timing]], formats: Mapping[str, str]
    ) -> Iterator[measure.Row]:
        """Throughput, with the shares attained; what the floor allows; and the 95th percentile of steps."""
        case, ceiling = self.case, self.ceiling
        rates = {name: [one.throughput for one in own] for name, own in values.items()}
        works = {name: ceilings.work(case, name) for name in dict.fromkeys(formats.values()) if name in ceiling.flops}
        notes = {
            name: works[formats[name]].attained(case.batch / measure.middle(own), ceiling, formats[name])
            for name, own in rates.items()
            if formats[name] in works
        }
        title = f"{case.name}, {about}"
        yield from measure.summarise(title, "throughput", "images/s", rates, notes).values()
        for name, work in works.items():
            most = {f"floor in {name}": [case.batch / work.floor(ceiling, name)]}
            bound = f"{work.bound(ceiling, name)}: {work.flops / 1e9:.3g} GFLOP, {work.moved / 1e6:.3g} MB a step"
            yield from measure.summarise(title, "floor", "images/s", most, {f"floor in {name}": bound}).values()
        slowest = {name: [one.p95 * 1e3 for one in own] for name, own in values.items()}
        middle = {
            name: f"p50 {measure.middle([one.p50 for one in own]) * 1e3:.3g} ms" for name, own in values.items()
        }
        yield from measure.summarise(f"{title}, p95 of steps", "step p95", "ms", slowest, middle).values()

    @staticmethod
    def _ratio(own: list[Timing], reference: list[Timing]) -> float:
        pairs = measure.pairwise([one.throughput for one in own], [one.throughput for one in reference])
        return measure.middle(pairs)


def _format(changes: Mapping[str, str | int]) -> str:
    return str(changes.get("precision", "fp32"))


def _combined(all_changes: Iterator[Mapping[str, str | int]]) -> dict[str, str | int]:
    return functools.reduce(lambda one, more: one | dict(more), all_changes, {})


def _effective(best: list[Optimization]) -> list[str]:
    """The names of those that no later one replaces."""
    return [
        one.name
        for number, one in enumerate(best)
        if not any(set(one.plain) <= set(later.plain) for later in best[number + 1 :])
    ]
