"""Overheads: of our loop, of DDP on one rank, and of more ranks.

Loop: our trainer against the plain loop on the same batches, the small CNN on the digits with batch 8 on one thread, where a
step is mostly overhead. DDP: one rank against no process group, on the cases of `optimizations` with all cores as one device,
and on the small step. Growth: the small step with one core or GPU per rank, ranks in powers of two. 5 rounds in alternation,
each in a fresh process; medians and percentiles over all ranks' steps, from the records.

Attained on two cores of an AMD EPYC (AVX-512, no AMX), 3 rounds, 2026-11-22: our loop and its recorder take 0.7 (0.4 .. 1.2) ms a
step more than the plain loop's 2.9 ms; DDP on one rank 0.2 (0.02 .. 0.34) ms more than no process group's 2.7 ms, and no
significant difference in larger steps; two ranks 1.9 (1.5 .. 2.2) times one without a group, at the 99th percentile
2.5 times. Not yet run on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hpc_utils import provenance

from . import measure
from .sides import Case, Timing, cases, ours, plain

TINY = Case("cnn", "digits", 8, 300, 10)
BARE, OURS = "plain loop on our batches", "our loop and recorder"
ALONE, DDP = "no process group", "DDP, 1 rank"


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Loop, DDP, growth."""
    import torch

    tiny = replace(TINY, steps=4, warmup=2) if options.quick else TINY
    yield from _loop(tiny, options)
    if not options.quick:  # growth has one rank with DDP and without, too
        for case in cases(torch.cuda.is_available(), options):
            yield from _ddp(case, options)
    yield from _growth(tiny, options)


def _loop(case: Case, options: measure.Options) -> Iterator[measure.Row]:
    """Our loop against the plain loop on the same batches."""
    about = f"loop, {case.name}, 1 thread"
    sides = {
        BARE: functools.partial(plain, case, 1, data="ours-host", channels_last=1, keep_freed=1),
        OURS: functools.partial(ours, case, 1, loader="host", channels_last="true"),
    }
    values = measure.alternate(about, sides, options)
    yield from _percentile(about, "p50", values)
    yield _difference(about, values)


def _ddp(case: Case, options: measure.Options) -> Iterator[measure.Row]:
    """DDP on one rank, against no process group, on all cores."""
    about = f"DDP, {case.name}, {options.threads} thread{'s' if options.threads > 1 else ''}"
    sides = {
        ALONE: functools.partial(ours, case, options.threads),
        DDP: functools.partial(ours, case, options.threads, parallel="ddp"),
    }
    values = measure.alternate(about, sides, options)
    yield from _percentile(about, "p50", values)
    yield _difference(about, values)


def _growth(case: Case, options: measure.Options) -> Iterator[measure.Row]:
    """Percentiles of small steps over all ranks, by number of ranks."""
    about = f"growth, {case.name} a rank"
    sides = {ALONE: functools.partial(ours, case, 1), DDP: functools.partial(ours, case, 1, parallel="ddp")}
    for ranks in powers(_devices()):
        sides[f"DDP, {ranks} ranks"] = functools.partial(ours, case, 1, ranks, parallel="ddp")
    values = measure.alternate(about, sides, options)
    yield from _percentile(about, "p50", values)
    yield _difference(about, values)
    for name in ("p95", "p99"):
        yield from _percentile(about, name, values)


def _percentile(about: str, name: str, values: Mapping[str, list[Timing]]) -> Iterator[measure.Row]:
    numbers = {side: [getattr(one, name) * 1e3 for one in own] for side, own in values.items()}
    yield from measure.summarise(f"{about}, {name}", f"step {name}", "ms", numbers).values()


def _difference(about: str, values: Mapping[str, list[Timing]]) -> measure.Row:
    """The second side's median step minus the first's."""
    first, second, *_ = values.values()
    extra = [(b.p50 - a.p50) * 1e3 for a, b in zip(first, second, strict=True)]
    name = "more: {1} - {0}".format(*values)
    return measure.summarise(f"{about}, p50", "difference", "ms", {name: extra})[name]


def _devices() -> int:
    """The number of devices on this machine: GPUs, or cores without a GPU."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else len(provenance.core_groups())


def powers(most: int) -> list[int]:
    """2, 4, 8, ... up to `most`."""
    return [2**power for power in range(1, most.bit_length()) if 2**power <= most]
