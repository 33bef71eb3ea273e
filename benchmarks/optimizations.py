"""The plain loop, each optimisation of it, and ours: images a second, percentiles of steps, and their floor.

The small CNN on the digits (batch 128, 300 steps) and ResNet-18 on CIFAR-10 (batch 64, 8 steps; on a GPU batch 512, 97 steps),
all cores as one device, after warm-up steps; 5 rounds in alternation, each side in a fresh process. First each
optimisation alone: one that makes a faster computation shows nothing behind a loader that is the limit. Then all of
them together but those that alone made the loop slower, in the plain loop and in ours. On a CPU torch's default is
fp32 as well: that side is the same program, and shows the noise.

Attained by ours in its default on a quiet virtual machine with 2 cores of an AMD EPYC (no AMX, avx512_bf16), torch 2.13.0,
2026-11-21: 2.6 (1.1 .. 3.7) times the plain loop with the CNN and 1.16 (1.07 .. 1.20) times with ResNet-18 (114 against 96
images/s). Two threads wait for each other when a neighbour takes a core: on a shared machine measure with
`--threads 1`. The GPU's cases have not been run yet.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from hpc_utils.analyze.peaks import Peak
from hpc_utils.launch.place import Place

from . import ceilings, measure
from .sides import Case, Timing, cases, ours, plain

PLAIN, DEFAULT, PLAIN_BEST = "plain loop, fp32", "torch's default", "plain loop, best"
OURS, OURS_BEST = "ours, default", "ours, best"
SLOWER = 0.97  # alone, of the plain loop: such an optimisation is left out of the best
COSTS = 0.97  # what is promised: ours at its best, of the plain loop with the same optimisations

Side = Callable[[], Timing]


@dataclass(frozen=True)
class Optimization:
    """What the plain loop is given, and the knobs that ask ours for the same; None: ours has no such loader."""

    name: str
    plain: Mapping[str, str | int]
    ours: Mapping[str, str | int] | None = None


def optimizations(gpu: bool, workers: int, compiled: bool) -> Iterator[Optimization]:
    """Those that this device may profit from; of two that exclude each other, the later wins where all are combined."""
    for precision in ("tf32", "bf16") if gpu else ("bf16",):
        if why := Place.here().refusal(1, {"precision": precision}):
            print(f"left out: {why}", file=sys.stderr)
        else:
            yield Optimization(precision, {"precision": precision}, {"precision": precision})
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
    for case in cases(gpu, options.quick):
        yield from Comparison(case, gpu, ceiling, options).rows(known)


class Comparison:
    """One case: its sides, measured in two alternations, each with the plain loop as its reference."""

    def __init__(self, case: Case, gpu: bool, ceiling: Peak, options: measure.Options) -> None:
        self.case, self.ceiling, self.options = case, ceiling, options
        self.default = "tf32" if gpu else "fp32"  # what torch's own default computes convolutions in
        self.works = {precision: ceilings.work(case, precision) for precision in ceiling.flops}

    def rows(self, known: list[Optimization]) -> Iterator[measure.Row]:
        """What the floor allows; each of `known` alone; together those that alone did not make the plain loop slower."""
        yield from self._floors()
        if self.options.quick:
            yield from self._together(known)
            return
        sides = {PLAIN: self._plain(), DEFAULT: self._plain(precision="default")}
        sides |= {f"+ {one.name}": self._plain(**one.plain) for one in known}
        formats = {PLAIN: "fp32", DEFAULT: self.default} | {f"+ {one.name}": _format(one.plain) for one in known}
        values = self._measured("each alone", sides)
        yield from self._shown("each alone", values, formats, {})
        yield from self._together([one for one in known if _ratio(values[f"+ {one.name}"], values[PLAIN]) >= SLOWER])

    def _together(self, best: list[Optimization]) -> Iterator[measure.Row]:
        by_hand = _combined(one.plain for one in best)
        knobs = {"channels_last": "false"} | _combined(one.ours or {} for one in best)
        run_ours = functools.partial(ours, self.case, self.options.threads)
        sides = {
            PLAIN: self._plain(),
            PLAIN_BEST: self._plain(**by_hand),
            OURS: run_ours,
            OURS_BEST: functools.partial(run_ours, **knobs),
        }
        formats = {PLAIN: "fp32", PLAIN_BEST: _format(by_hand), OURS: "fp32", OURS_BEST: _format(knobs)}
        about = {PLAIN_BEST: _listed(by_hand), OURS_BEST: _listed(knobs)}
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
            name: f"p50 {measure.middle([one.p50 for one in own]) * 1e3:.3g} ms" for name, own in values.items()
        }
        yield from measure.summarise(f"{title}, p95 of steps", "step p95", "ms", slowest, middle).values()


def _ratio(own: list[Timing], reference: list[Timing]) -> float:
    pairs = measure.pairwise([one.throughput for one in own], [one.throughput for one in reference])
    return measure.middle(pairs)


def _format(changes: Mapping[str, str | int]) -> str:
    return str(changes.get("precision", "fp32"))


def _combined(changes: Iterable[Mapping[str, str | int]]) -> dict[str, str | int]:
    return functools.reduce(lambda one, more: one | dict(more), changes, {})


def _listed(changes: Mapping[str, str | int]) -> str:
    return " ".join(f"{name}={value}" for name, value in changes.items())
