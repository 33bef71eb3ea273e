"""The plain loop, each optimisation of it, and ours: images a second, percentiles of steps, and their floor.

The small CNN on the digits (batch 128, 300 steps) and ResNet-18 on CIFAR-10 (batch 64, 6 steps; on a GPU batch 512, 97 steps),
all cores as one device, after warm-up steps; 5 rounds in alternation, each side in a fresh process. First each loader behind
the plain loop, and each other optimisation alone on batches that are on the device already: behind a loader that is the
limit, neither a faster nor a slower computation would show. Then the fastest loader and all optimisations but those that
alone made the loop slower, in the plain loop and in ours. On a CPU a loader's worker would take a core from the
computation (`loaders` measures it), and torch's default is fp32: these two are measured on a GPU alone.

Attained on two cores of an AMD EPYC (AVX-512 with bf16, no AMX), 3 rounds, 2026-11-22, times the plain loop: with the CNN ours by
default 2.5 (2.5 .. 3.0), at its best 3.7 (3.5 .. 3.9), the plain loop with the same by hand 3.8 (3.7 .. 4.0); with ResNet-18
1.16 (1.1 .. 1.3), 2.2 (2.1 .. 2.5) and 2.2 (2.2 .. 2.4). That ours at its best keeps 0.97 of the same by hand is so with
ResNet-18 (0.995), and nearly with the CNN (0.964), whose step of 8 ms our recorder lengthens. Two threads wait for each other
when a neighbour takes a core: on a shared machine measure with `--threads 1`. Not yet run on a GPU.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpc_utils.analyze.profiles.peaks import Peak
from hpc_utils.launch.request import Layout
from hpc_utils.launch.target import Target

from . import ceilings, measure
from .sides import Case, Timing, cases, ours, plain

PLAIN, ON_DEVICE, DEFAULT = "plain loop, fp32", "batches on the device", "torch's default"
PLAIN_BEST, OURS, OURS_BEST = "plain loop, best", "ours, default", "ours, best"
SLOWER = 0.97  # alone, of the plain loop on the device's batches: such an optimisation is left out of the best
COSTS = 0.97  # what is promised: ours at its best, of the plain loop with the same optimisations

Side = Callable[[], Timing]


@dataclass(frozen=True)
class Optimization:
    """The plain loop's arguments, and the equivalent parameters of our trainer; none if it always does it."""

    name: str
    plain: Mapping[str, str | int]
    ours: Mapping[str, str | int]


def loaders(gpu: bool, threads: int) -> Iterator[Optimization]:
    """The textbook's loader first, the fastest expected one last."""
    yield Optimization(PLAIN, {}, {"loader": "workers", "pin_memory": "false"})
    if gpu:  # which leaves the cores to them
        count = min(8, max(1, threads - 1))
        plural = "worker" if count == 1 else "workers"
        parameters = {"loader": "workers", "loader_workers": count}
        yield Optimization(f"{count} {plural}, pinned", {"workers": count, "pinned": 1}, parameters)
    yield Optimization(ON_DEVICE, {"data": "device"}, {"loader": "device"})


def computing(gpu: bool, compile: bool | None) -> Iterator[Optimization]:
    """Those that this device may profit from, whatever the loader; of two that exclude each other, the later is combined."""
    requested = [(precision, {"precision": precision}) for precision in (("tf32", "bf16") if gpu else ("bf16",))]
    if gpu if compile is None else compile:
        mode = "reduce-overhead" if gpu else "default"
        requested.append((f"compile ({mode})", {"compile": mode}))
    else:
        _left_out("compile (--no-compile)" if gpu else "compile: on a CPU only `--compile` measures it")
    for name, parameters in requested:
        if why := Target.here().refusal(Layout(), parameters):
            _left_out(why)
        else:
            yield Optimization(name, parameters, parameters)
    yield Optimization("channels_last", {"channels_last": 1}, {"channels_last": "true"})
    yield Optimization("fused SGD", {"fused": 1}, {"fused_optimizer": "true"})
    yield Optimization("freed memory kept", {"keep_freed": 1}, {})


def best(
    loading: Sequence[Optimization], others: Sequence[Optimization], values: Mapping[str, list[Timing]]
) -> list[Optimization]:
    """The fastest of the loaders, and of the others those that alone did not make the plain loop slower."""
    fastest = max(loading, key=lambda one: _ratio(values[one.name], values[PLAIN]))
    return [fastest, *(one for one in others if _ratio(values[one.name], values[ON_DEVICE]) >= SLOWER)]


def run(options: measure.Options) -> Iterator[measure.Row]:
    """All cases on this machine's device, a GPU if there is one."""
    import torch

    gpu = torch.cuda.is_available()
    loading, others = list(loaders(gpu, options.threads)), list(computing(gpu, options.compile))
    ceiling, rows = ceilings.measured(options)
    yield from rows
    for case in cases(gpu, options):
        yield from Comparison(case, gpu, ceiling, options).rows(loading, others)


class Comparison:
    """One case: its sides, measured in two alternations."""

    def __init__(self, case: Case, gpu: bool, ceiling: Peak, options: measure.Options) -> None:
        self.case, self.gpu, self.ceiling, self.options = case, gpu, ceiling, options
        self.works = {precision: ceilings.work(case, precision) for precision in ceiling.flops}

    def rows(self, loading: Sequence[Optimization], others: Sequence[Optimization]) -> Iterator[measure.Row]:
        """What the floor allows; each optimisation alone; the best of them together."""
        yield from self._floors()
        if self.options.quick:
            yield from self._together([loading[-1], *others])
            return
        alone = {one.name: {"data": "device", **one.plain} for one in others}
        if self.gpu:  # where it computes convolutions in TF32
            alone = {DEFAULT: {"data": "device", "precision": "default"}} | alone
        changes = {one.name: one.plain for one in loading} | alone
        values = self._measured("each alone", {name: self._plain(**own) for name, own in changes.items()})
        formats = {name: _format(own) for name, own in changes.items()}
        chosen = best(loading, others, values)
        about = {one.name: "left out of the best" for one in (*loading, *others) if one not in chosen}
        yield from self._shown("loaders", {one.name: values[one.name] for one in loading}, formats, about)
        on_device = {name: values[name] for name in (ON_DEVICE, *alone)}
        yield from self._shown("each alone on the device", on_device, formats, about)
        yield from self._together(chosen)

    def _together(self, chosen: Sequence[Optimization]) -> Iterator[measure.Row]:
        by_hand = _combined(one.plain for one in chosen)
        parameters = {"channels_last": "false"} | _combined(one.ours for one in chosen)
        run_ours = functools.partial(ours, self.case, self.options.threads)
        sides = {
            PLAIN: self._plain(),
            PLAIN_BEST: self._plain(**by_hand),
            OURS: run_ours,
            OURS_BEST: functools.partial(run_ours, **parameters),
        }
        formats = {PLAIN: "fp32", PLAIN_BEST: _format(by_hand), OURS: "fp32", OURS_BEST: _format(parameters)}
        about = {PLAIN_BEST: _listed(by_hand), OURS_BEST: _listed(parameters)}
        values = self._measured("together", sides)
        promises = {
            OURS: (PLAIN, "at least as fast as the plain loop", 1.0),
            OURS_BEST: (PLAIN_BEST, f"at least {COSTS:g} of the plain loop with the same by hand", COSTS),
        }
        for row in self._shown("together", values, formats, about):
            if row.variant in promises and row.metric == "throughput":
                reference, text, least = promises[row.variant]
                ratio = _ratio(values[row.variant], values[reference])
                row = row.promised(f"{text} ({ratio:.3g} x)", ratio >= least)
            yield row

    def _plain(self, **changes: str | int) -> Side:
        return functools.partial(plain, self.case, self.options.threads, **changes)

    def _measured(self, about: str, sides: Mapping[str, Side]) -> dict[str, list[Timing]]:
        return measure.alternate(f"{self.case.name}, {about}", sides, self.options)

    def _floors(self) -> Iterator[measure.Row]:
        for precision, work in self.works.items():
            most = self.case.batch / work.floor(self.ceiling, precision)
            note = f"{work.bound(self.ceiling, precision)}: {work.flops / 1e9:.3g} GFLOP, {work.moved / 1e6:.3g} MB a step"
            rows = measure.summarise(f"{self.case.name}, floor", "floor", "images/s", {precision: [most]})
            yield rows[precision].noted(note)

    def _shown(
        self,
        stage: str,
        values: Mapping[str, list[Timing]],
        formats: Mapping[str, str],
        about: Mapping[str, str],
    ) -> Iterator[measure.Row]:
        """Throughput, with the shares attained, and the 95th percentile of steps."""
        title = f"{self.case.name}, {stage}"
        rates = {name: [one.throughput for one in own] for name, own in values.items()}
        for name, row in measure.summarise(title, "throughput", "images/s", rates).items():
            share = self.works[formats[name]].attained(self.case.batch / row.median, self.ceiling, formats[name])
            yield row.noted("; ".join(filter(None, [share, about.get(name)])))
        slowest = {name: [one.p95 * 1e3 for one in own] for name, own in values.items()}
        middle = {
            name: f"p50 {statistics.median([one.p50 for one in own]) * 1e3:.3g} ms" for name, own in values.items()
        }
        yield from measure.summarise(f"{title}, p95 of steps", "step p95", "ms", slowest, middle).values()


def _ratio(own: list[Timing], reference: list[Timing]) -> float:
    pairs = measure.pairwise([one.throughput for one in own], [one.throughput for one in reference])
    return statistics.median(pairs)


def _format(changes: Mapping[str, str | int]) -> str:
    """What products and convolutions are computed in; torch's default is measured on a GPU."""
    precision = str(changes.get("precision", "fp32"))
    return "tf32" if precision == "default" else precision


def _left_out(what: str) -> None:
    print(f"left out: {what}", file=sys.stderr)


def _combined(changes: Iterable[Mapping[str, str | int]]) -> dict[str, str | int]:
    return functools.reduce(lambda one, more: one | dict(more), changes, {})


def _listed(changes: Mapping[str, str | int]) -> str:
    return " ".join(f"{name}={value}" for name, value in changes.items())
