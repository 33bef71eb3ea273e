"""What is no computation: our loop's own cost, DDP's on one rank, and how a step grows with ranks.

The small CNN on the digits. Our loop with its recorder, against the plain loop on the very same batches of our loader: batch 8,
one thread, so that a step is little else than overhead. DDP on one rank against no process group: the same, and batch 128
on all cores. Growth: batch 8 a rank, one core or GPU each, ranks in powers of two as far as there are cores or GPUs.
300 steps, 5 rounds in alternation, each side in a fresh process; medians and percentiles of steps from the records.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hpc_utils import provenance

from . import measure
from .sides import Case, Timing, ours, plain

TINY = Case("cnn", "digits", 8, 300, 10)
WHOLE = replace(TINY, batch=128)
SMOKE = 4  # steps
BARE, OURS = "plain loop on our batches", "our loop and recorder"
ALONE, DDP = "no process group", "DDP, 1 rank"


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Loop, DDP, growth."""
    tiny, whole = (replace(case, steps=SMOKE) if options.quick else case for case in (TINY, WHOLE))
    sides = {
        BARE: functools.partial(plain, tiny, 1, data="ours-host", channels_last=1),
        OURS: functools.partial(ours, tiny, 1, loader="host", channels_last="true"),
    }
    yield from _difference(f"loop, {tiny.name}, 1 thread", sides, options)
    for case, threads in ((tiny, 1), (whole, options.threads)):
        sides = {
            ALONE: functools.partial(ours, case, threads),
            DDP: functools.partial(ours, case, threads, parallel="ddp"),
        }
        plural = "thread" if threads == 1 else "threads"
        yield from _difference(f"DDP, {case.name}, {threads} {plural}", sides, options)
    yield from _growth(tiny, options)


def _difference(
    case: str, sides: Mapping[str, Callable[[], Timing]], options: measure.Options
) -> Iterator[measure.Row]:
    """The median step of two sides, and what the second takes more."""
    values = measure.alternate(case, sides, options)
    middles = {name: [one.p50 * 1e3 for one in own] for name, own in values.items()}
    yield from measure.summarise(case, "median step", "ms", middles).values()
    first, second = middles.values()
    extra = [b - a for a, b in zip(first, second, strict=True)]
    yield from measure.summarise(case, "difference", "ms", {"difference": extra}).values()


def _growth(case: Case, options: measure.Options) -> Iterator[measure.Row]:
    """Percentiles of steps that are all overhead, over all ranks' steps."""
    about = f"growth, {case.name} a rank"
    sides = {ALONE: functools.partial(ours, case, 1), DDP: functools.partial(ours, case, 1, parallel="ddp")}
    for ranks in _powers(_places()):
        sides[f"DDP, {ranks} ranks"] = functools.partial(ours, case, 1, ranks, parallel="ddp")
    values: dict[str, list[Timing]] = measure.alternate(about, sides, options)
    for name in ("p50", "p95", "p99"):
        numbers = {side: [getattr(one, name) * 1e3 for one in own] for side, own in values.items()}
        yield from measure.summarise(f"{about}, {name}", f"step {name}", "ms", numbers).values()


def _places() -> int:
    """Ranks that have a device of their own here: GPUs, or cores where there is none."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else len(provenance.core_groups())


def _powers(most: int) -> list[int]:
    """2, 4, 8, ... up to `most`."""
    return [2**power for power in range(1, most.bit_length()) if 2**power <= most]
