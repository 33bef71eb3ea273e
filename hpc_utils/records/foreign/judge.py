"""Whether a row's throughput follows from its own time and samples, and if not, which mistake explains it.

Nothing is guessed: what is missing is derived only where it follows, and that is said; a row that no known mistake
explains is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hpc_utils.records import checks

from .errors import RowFault
from .mapping import LARGEST_TOLERANCE, Mapping
from .printed import Printed
from .table import Row

CONSISTENT = "consistent"
PER_RANK = "counted once per rank"
ONE_RANK = "one rank's samples"
COMPUTED = "computed"
UNCHECKED = "throughput only, unchecked"
# A run's verdict is the gravest of its epochs'.
VERDICTS = (PER_RANK, ONE_RANK, UNCHECKED, COMPUTED, CONSISTENT)

CORRECTIONS = {
    PER_RANK: "the global samples were counted once per rank: throughput = samples / seconds instead",
    ONE_RANK: "one rank's samples were taken for all: throughput = samples / seconds instead",
}
NOT_OF_A_RANK = "the throughput is global already, not a rank's as throughput_is says: samples / seconds instead"
# Where the slack of what is printed reaches half the distance from 1 to 2, it cannot tell two ranks from one.
BLURRED = math.log(2) / 2
UNITS = {1e3: ("milliseconds", 1e-3), 1e6: ("microseconds", 1e-6), 1 / 60: ("minutes", 60), 1 / 3600: ("hours", 3600)}


@dataclass(frozen=True)
class Judged:
    """A row that may be used: `throughput` is right as far as anybody can know, `reported` is theirs over all ranks."""

    row: Row
    samples: float | None
    seconds: float | None
    throughput: float
    reported: float | None
    verdict: str
    correction: str


def judge(row: Row, mapping: Mapping) -> Judged:
    """`row`, completed, checked and where need be corrected.

    Raises:
        RowFault: it contradicts itself in a way that nothing explains, or says too little.
    """
    found = _judge(row, mapping)
    for fault in checks.number_faults({"throughput": found.throughput}, ["throughput"]):
        raise RowFault(fault)
    return found


def _judge(row: Row, mapping: Mapping) -> Judged:
    _layout(row)
    given = row.measures
    samples, noted = _samples(row, mapping)
    seconds, reported = given.get("seconds"), _reported(row, mapping)
    known = (_value(samples), _value(seconds))
    if reported is None:
        if samples is None or seconds is None:
            raise RowFault("neither a throughput, nor samples and seconds to compute it from")
        row.said.append("throughput = samples / seconds")
        return Judged(row, *known, samples.value / seconds.value, None, COMPUTED, noted)
    if samples is None or seconds is None:
        row.said.append(f"no {'seconds' if samples else 'samples'}: the throughput cannot be checked")
        return Judged(row, *known, reported.value, reported.value, UNCHECKED, noted)
    verdict = _verdict(row, reported, seconds, samples, mapping.tolerance)
    ours = verdict == PER_RANK and mapping.throughput_is == "per_rank"  # we multiplied, not its authors
    text = "; ".join(filter(None, [noted, NOT_OF_A_RANK if ours else CORRECTIONS.get(verdict)]))
    right = reported.value if verdict == UNCHECKED else samples.value / seconds.value
    return Judged(row, *known, right, reported.value, verdict, text)


def _layout(row: Row) -> None:
    """Ranks, nodes and batches completed where one follows from two, and all numbers as they must be."""
    zero = {"epoch", "repeat"}  # may be counted from 0
    numbers = row.counts | {name: one.value for name, one in row.measures.items()}
    positive = [name for name in numbers if name not in zero and name != "test_accuracy"]
    for fault in checks.number_faults(numbers, positive):
        raise RowFault(fault)
    for name in zero & row.counts.keys():
        if row.counts[name] < 0:
            raise RowFault(f"{name} is {row.counts[name]}, less than 0")
    if not 0 <= numbers.get("test_accuracy", 0) <= 1:
        raise RowFault(f"test_accuracy is {numbers['test_accuracy']:g}, not a share from 0 to 1: scale = 0.01?")
    _product(row, "world_size", "nodes", "ranks_per_node")
    if "world_size" not in row.counts:
        raise RowFault("world_size is missing: on how many ranks was it?")
    _product(row, "global_batch", "batch_per_device", "world_size")
    if row.words.get("parallel") == "none" and row.counts["world_size"] > 1:
        raise RowFault(
            f"parallel is none (no process group), but there are {row.counts['world_size']} ranks: "
            "[values.parallel] says what their word means"
        )


def _product(row: Row, whole: str, one: str, other: str) -> None:
    """`whole` = `one` x `other`: the third from two, or a contradiction named."""
    counts = row.counts
    missing = [name for name in (whole, one, other) if name not in counts]
    if not missing and counts[whole] != counts[one] * counts[other]:
        raise RowFault(
            f"{whole} is {counts[whole]}, but {one} x {other} is {counts[one]} x {counts[other]} = "
            f"{counts[one] * counts[other]}"
        )
    if missing == [whole]:
        counts[whole] = counts[one] * counts[other]
        row.said.append(f"{whole} = {one} x {other}")
    for third, by in ((one, other), (other, one)):
        if missing == [third] and counts[whole] % counts[by] == 0:
            counts[third] = counts[whole] // counts[by]
            row.said.append(f"{third} = {whole} / {by}")


def _samples(row: Row, mapping: Mapping) -> tuple[Printed | None, str]:
    """Global samples in the row's time, and what had to be corrected in them: steps and global batch know better."""
    given, ranks, batch = row.measures.get("samples"), row.counts["world_size"], row.counts.get("global_batch")
    full = row.counts["steps"] * batch if batch and "steps" in row.counts else None
    if given is None:
        if full is not None:
            row.said.append("samples = steps x global_batch")
        return (None if full is None else Printed(full)), ""
    if mapping.samples_is == "per_rank" and "samples" in mapping.columns.model_fields_set:
        given *= Printed(ranks)
        row.said.append("samples = samples of a rank x world_size")
    if full is None:
        if "samples" in mapping.constants.model_fields_set and batch and batch < given.value:
            # A data set's size: its last batch may have been dropped, or filled up.
            given = Printed(given.value, given.slack - math.log1p(-batch / given.value))
        return given, ""
    if abs(given.value - full) < batch:
        if given.value > full:
            row.said.append("samples = steps x global_batch: a last batch was dropped")
            return Printed(full), ""
        return given, ""  # rounding's slack and all
    if ranks > 1 and abs(given.value / ranks - full) < batch:
        return Printed(full), f"samples were counted once per rank: {full:g}, not {given.value:g}"
    if ranks > 1 and abs(given.value * ranks - full) < batch:
        return Printed(full), f"samples were one rank's: {full:g}, not {given.value:g}"
    if fault := checks.overcount(given.value, row.counts["steps"], batch):
        raise RowFault(fault)
    return given, ""


def _reported(row: Row, mapping: Mapping) -> Printed | None:
    given = row.measures.get("throughput")
    if given is not None and mapping.throughput_is == "per_rank":
        row.said.append("throughput = throughput of a rank x world_size")
        given *= Printed(row.counts["world_size"])
    return given


def _verdict(row: Row, throughput: Printed, seconds: Printed, samples: Printed, tolerance: float) -> str:
    """Which of the explanations fits within what is printed, and what the mapping allows beyond."""
    factor, ranks = throughput * seconds / samples, row.counts["world_size"]
    slack = factor.slack + math.log1p(tolerance) + checks.RELATIVE_TOLERANCE
    if slack >= BLURRED:
        row.said.append("too few digits are printed to check the throughput")
        return UNCHECKED
    explanations = {CONSISTENT: 1, PER_RANK: ranks, ONE_RANK: 1 / ranks}
    for verdict, expected in explanations.items():
        if _fits(factor.value, expected, slack):
            return verdict
    numbers = {"throughput": throughput.value, "seconds": seconds.value, "samples": samples.value}
    raise RowFault(
        f"{checks.disagreement(numbers)}, which {ranks} {'ranks do' if ranks > 1 else 'rank does'} not explain"
        f"{_hint(row, factor.value, slack, explanations.values())}"
    )


def _hint(row: Row, factor: float, slack: float, explanations: Iterable[float]) -> str:
    """What the factor looks like; a hint only, nothing is corrected by it."""
    for times, (unit, scale) in UNITS.items():
        if _fits(factor, times, slack):
            return f": is the time in {unit}? (scale = {scale:g})"
    for name in ("nodes", "ranks_per_node"):
        if row.counts.get(name, 1) > 1 and _fits(factor, row.counts[name], slack):
            return f": it is {name} times too large"
    off = min((abs(factor / expected - 1) for expected in explanations), default=1)
    if off <= LARGEST_TOLERANCE:
        return f": off by {off:.2%}, more than what is printed allows; were the two timed apart? (tolerance = 0.01)"
    return ""


def _fits(factor: float, expected: float, slack: float) -> bool:
    return abs(math.log(factor / expected)) <= slack if factor > 0 and math.isfinite(factor) else False


def _value(number: Printed | None) -> float | None:
    return None if number is None else number.value
