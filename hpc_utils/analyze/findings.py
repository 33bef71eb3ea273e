"""What in a set of runs is not as it should be: points that are too good, too bad or too uncertain, and why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from . import causes, stats
from .curves import curves, usable
from .points import POINT, SAME, gather, number
from .scaling import gains
from .targets import headline

SPREAD = 0.1  # of repeats, (largest - smallest) / median throughput; beyond it a median says little
ENOUGH_REPEATS = 3  # fewer have no interval worth its name
COLUMNS = [
    "finding", *SAME, "kind", "batch", "baseline", *POINT, "layout",
    "value", "low", "high", "expected", "evidence", "likely", "look",
]  # fmt: skip


def findings(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a finding, the gravest kind first; an empty frame if all is as it should be.

    `finding` is one of:
    "super-linear": an efficiency whose interval is wholly above 1;
    "throughput falls" as ranks are added, "efficiency rises" again with more ranks, by more than the interval of
    their ratio (of single runs: more than `SPREAD`), each rank count by its best layout;
    "repeats spread" by more than `SPREAD`;
    "restarted": runs continued from a checkpoint; "oversubscribed": barred from scaling figures; "few repeats".

    Columns: finding; those of `SAME`; kind, batch and baseline of the curve it is seen on, if any; those of `POINT`, layout;
    value, low, high (the number that it is about: an efficiency;
    a ratio of throughputs; a spread; a count); expected, evidence, likely (its cause, as far as records tell), look
    (what to look at): in words.
    """
    sound = usable(runs).reset_index(drop=True)
    found = curves(sound)
    measured = headline(gains(found))
    configurations = gather(sound)
    rows = [
        *_super_linear(measured, found, sound),
        *_falling(found),
        *_rising(measured, sound),
        *_spread(configurations, sound),
        *_restarted(configurations, sound),
        *_oversubscribed(runs[runs.oversubscribed.fillna(False).astype(bool)]),
        *_few(configurations),
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def counts(found: pd.DataFrame) -> pd.DataFrame:
    """How many of each kind of finding there are: finding, count."""
    return found.groupby("finding", sort=False).size().rename("count").reset_index()


def _super_linear(measured: pd.DataFrame, found: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    ddp = found[(found.world_size == 1) & (found.parallel != "none")].set_index("curve").step_seconds_each
    for row in measured[(measured.world_size > 1) & (measured.low > 1)].to_dict("records"):
        point, one = runs.iloc[row["at"]], runs.iloc[row["at_one"]]
        known = causes.of_super_linear(row, point, one, ddp.get(row["curve"]))
        yield _row("super-linear", row, value=row["efficiency"]) | {
            "expected": "at most 100 %: more ranks do the same work, and have to agree on it",
            "evidence": "; ".join(evidence for _, evidence in known),
            "likely": "; ".join(cause for cause, _ in known) or "nothing in the records tells",
            "look": "the baseline first: repeat it, on the same nodes; then a profiled step of both",
        }


def _falling(found: pd.DataFrame) -> Iterator[dict]:
    before, after, gain = _neighbours(found, "throughput")
    falls = (gain.high < 1) | ((gain.repeats == 1) & (gain.value < 1 - SPREAD))
    for one, other, ratio in _each(falls, before, after, gain):
        yield _row("throughput falls", other, value=ratio["value"]) | {
            "low": ratio["low"],
            "high": ratio["high"],
            "expected": f"at least the {one['throughput']:,.0f} samples/s of {_ranks(one)}",
            "evidence": f"{other['throughput']:,.0f} samples/s on {_ranks(other)}",
            "likely": causes.of_falling(one, other),
            "look": "comm_seconds and overlap_seconds of both in epochs.csv; the link (`hpc bench allreduce`)",
        }


def _rising(measured: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    before, after, speed = _neighbours(measured[measured.world_size > 1], "efficiency")
    # The speed of one rank of many is the efficiency but for the baseline, which both have in common.
    gain = speed[["value", "low"]].mul(before.world_size / after.world_size, axis=0)
    rises = (gain.low > 1) | ((speed.repeats == 1) & (gain.value > 1 + SPREAD))
    for one, other, _ in _each(rises, before, after, speed):
        known = causes.of_rising(one, other, runs)
        yield _row("efficiency rises", other, value=other["efficiency"]) | {
            "expected": f"at most the {one['efficiency']:.0%} of {_ranks(one)}",
            "evidence": "; ".join([f"{other['efficiency']:.0%} on {_ranks(other)}", *(said for _, said in known)]),
            "likely": "; ".join(cause for cause, _ in known) or "nothing in the records tells",
            "look": f"the point of {_ranks(one)}: repeat it before believing either",
        }


def _spread(configurations: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    least, most = (configurations.throughput_each.map(end) for end in (np.min, np.max))
    spread = (most - least) / configurations.throughput
    for row in configurations.assign(spread=spread)[spread > SPREAD].to_dict("records"):
        cause, evidence = causes.of_spread(runs.iloc[row["at"]])
        yield _row("repeats spread", row, value=row["spread"]) | {
            "expected": f"repeats within {SPREAD:.0%} of each other",
            "evidence": evidence,
            "likely": cause,
            "look": "who else used the machine (load, clocks, `hpc doctor`), then repeat",
        }


def _restarted(configurations: pd.DataFrame, runs: pd.DataFrame) -> Iterator[dict]:
    again = pd.to_numeric(runs.restarts).fillna(0).to_numpy() > 0
    some = configurations[[bool(again[at].any()) for at in configurations["at"]]]
    for row in some.to_dict("records"):
        names = runs.run_id.iloc[[at for at in row["at"] if again[at]]].tolist()
        yield _row("restarted", row, value=len(names)) | {
            "expected": "runs that were trained in one go",
            "evidence": _few_of(names),
            "likely": "a time limit, a preemption or a fault; the time is whole, but caches were cold more than once",
            "look": "the same points without these runs",
        }


def _oversubscribed(barred: pd.DataFrame) -> Iterator[dict]:
    for row in gather(barred).to_dict("records"):
        yield _row("oversubscribed", row, value=len(row["at"])) | {
            "expected": "no more ranks than cores can honestly hold",
            "evidence": _few_of(barred.run_id.iloc[row["at"]].tolist()),
            "likely": "a functional test: these runs stand in no scaling figure and no table",
            "look": "a machine with enough cores, or fewer threads per rank at every rank count",
        }


def _few(configurations: pd.DataFrame) -> Iterator[dict]:
    few = configurations[configurations.repeats < ENOUGH_REPEATS]
    for _, rows in few.groupby(number(few, SAME)):
        shown = [
            f"{row.parallel} {row.layout}, batch {row.global_batch:g}: {row.repeats}" for row in rows.itertuples()
        ]
        yield {name: rows.iloc[0][name] for name in SAME} | {
            "finding": "few repeats",
            "value": len(rows),
            "expected": f"at least {ENOUGH_REPEATS} repeats of every point",
            "evidence": _few_of(shown),
            "likely": "runs that are not complete yet, or a study with fewer repeats",
            "look": "`hpc status`; with fewer repeats nobody knows what a difference is worth",
        }


def _neighbours(found: pd.DataFrame, value: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Neighbours on each curve (fewer ranks, more ranks), every rank count by its best layout; their throughputs' ratio.

    The last has columns value, low, high, repeats.
    """
    best = found.loc[found.groupby(["curve", "world_size"])[value].idxmax()]
    best = best.sort_values(["curve", "world_size"], ignore_index=True)
    first = np.flatnonzero(best.curve == best.curve.shift(-1))
    before, after = (best.iloc[places].reset_index(drop=True) for places in (first, first + 1))
    ratios = stats.ratios(after.throughput_each.tolist(), before.throughput_each.tolist())
    return before, after, pd.DataFrame(ratios, columns=list(stats.Estimate._fields))


def _each(chosen: pd.Series, *frames: pd.DataFrame) -> Iterator[tuple[dict, ...]]:
    return zip(*(frame[chosen].to_dict("records") for frame in frames), strict=True)


def _row(finding: str, row: dict, value: float) -> dict:
    return {name: row[name] for name in COLUMNS if name in row} | {"finding": finding, "value": value}


def _ranks(row: dict) -> str:
    return f"{row['world_size']} ranks ({row['layout']})" if row["world_size"] > 1 else "1 rank"


def _few_of(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
