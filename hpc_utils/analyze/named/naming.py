"""One rule for all names: `<stem>.<point>`, and behind it only what else tells the rows of a frame apart.

    strong.efficiency.2             one curve of strong scaling: the number of ranks says it all
    strong.efficiency.2.bf16        ... in two precisions
    weak.efficiency.2.resnet18.batch-8

A frame's dimensions are tried in the order of `DIMENSIONS`; one joins the names of all rows if it tells any two apart that
those before it do not. What a value means nobody has to know: a name does not change with the order of rows, nor with what
cannot be seen in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from hpc_utils.analyze.value import Value


def slug(value: Any) -> str:
    """As part of a name: `DDP, 2 ranks` -> `ddp-2-ranks`, 0.5 -> `0-5`, 25.0 -> `25`; what is not known -> ``."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def rate(gbit: float) -> str:
    """A link's rate: 0.3 -> `300mbit`, 10 -> `10gbit`; as it is (NaN) -> ``, infinite -> `unlimited`."""
    if pd.isna(gbit):
        return ""
    if math.isinf(gbit):
        return "unlimited"
    return f"{gbit:.0f}gbit" if float(gbit).is_integer() else f"{slug(1000.0 * gbit)}mbit"


def _after(word: str) -> Callable[[Any], str]:
    """`8` -> `batch-8`."""
    return lambda value: f"{word}-{slug(value)}" if slug(value) else ""


# What may tell rows apart, in the order of the names' parts: column, and its value as part of a name ("": says nothing).
DIMENSIONS: Mapping[str, Callable[[Any], str]] = {
    "workload": slug,
    "dataset": slug,
    "scheme": slug,
    "parallel": lambda value: {"none": "alone"}.get(value, slug(value)),  # without a process group
    "baseline": lambda value: "" if value == "none" else f"over-{slug(value)}",
    "place": slug,
    "group": lambda value: "" if value == "all" else slug(value),
    "layout": slug,
    "batch": _after("batch"),
    "global_batch": _after("global-batch"),
    "batch_per_device": _after("device-batch"),
    "steps_per_epoch": _after("steps"),
    "gbit": rate,
    "link_gbit": rate,
    "precision": slug,
    "device": slug,
    "device_name": slug,
    "hardware_id": _after("on"),
    "threads_per_rank": _after("threads"),
    "share_period": _after("period"),
    "period": _after("period"),
    "parameters": _after("parameters"),
    "bucket_mb": _after("bucket"),
    "settings": _after("settings"),
    "torch": _after("torch"),
}


def names(frame: pd.DataFrame, stem: str, point: Sequence[str] = ()) -> list[str]:
    """The name of each row: `stem`, the values of the columns `point`, and of those of `DIMENSIONS` that are needed.

    Raises:
        ValueError: two rows differ in none of them: then no name would be true of one.
    """
    said = pd.DataFrame({name: frame[name].map(DIMENSIONS.get(name, slug)) for name in point}, index=frame.index)
    for name, say in DIMENSIONS.items():
        if name in frame and name not in said:
            more = said.assign(**{name: frame[name].map(say)})
            if len(more.drop_duplicates()) > (
                len(said.drop_duplicates()) if len(said.columns) else min(1, len(said))
            ):
                said = more
    found = [".".join([stem, *filter(None, row)]) for row in said.itertuples(index=False)]
    if twice := sorted({name for name in found if found.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)}: rows that differ in nothing that a name can say")
    return found


def values(
    frame: pd.DataFrame,
    stem: str,
    column: str,
    unit: str,
    says: str | Callable[[Any], str],
    *,
    point: Sequence[str] = (),
    ends: tuple[str, str] | None = ("low", "high"),
    scale: float = 1.0,
    repeats: str | None = "repeats",
    runs: Sequence[str] = ("runs",),
    files: Callable[[Any], Iterable[str]] = lambda row: (),
) -> list[Value]:
    """A value for each row of `frame` whose `column` is known, times `scale`.

    `says`: its sentence, of a row (`itertuples`). `ends`, `repeats`: the columns of its interval and repeats, `runs`: those
    that hold its run ids.
    """
    found = []
    for name, row in zip(names(frame, stem, point), frame.itertuples(), strict=True):
        value = getattr(row, column)
        if pd.isna(value):
            continue
        low, high = (float(getattr(row, end)) * scale for end in ends) if ends else (math.nan, math.nan)
        found.append(
            Value(
                name,
                str(value) if unit == "text" else _plain(value * scale),
                unit,
                says if isinstance(says, str) else says(row),
                low,
                high,
                int(getattr(row, repeats)) if repeats else 0,
                tuple(dict.fromkeys(one for name in runs for one in getattr(row, name))),
                tuple(files(row)),
            )
        )
    return found


def counted(name: str, value: float | str, unit: str, says: str, runs: Iterable[str] = (), **more: Any) -> Value:
    """A single value that no repeat could change: a count, a setting, a verdict in words."""
    return Value(name, value if isinstance(value, str) else _plain(value), unit, says, runs=tuple(runs), **more)


def _plain(value: Any) -> float | int:
    """Python's own number for NumPy's."""
    return value.item() if hasattr(value, "item") else value
