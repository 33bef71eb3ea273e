"""How documents and tables write values: digits, unit and interval, and where runs were measured."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils.analyze.value import Value
from hpc_utils.plural import counted
from hpc_utils.records import identity

if TYPE_CHECKING:
    import pandas as pd

NARROW = "\u202f"  # unbreakable, between groups of thousands
FIXED = "\u00a0"  # unbreakable, between number and unit
MINUS = "\u2212"
ABSENT = "–"
FORMS = ("value", "interval", "low", "high", "repeats", "bare", "cell")
SIGNIFICANT = 3  # digits of a value without an interval
CERTAIN = 2  # digits of an interval's half width
TINY = 1e-3  # smaller values are written with a power of ten
POWER_DIGITS = 2  # and with this many digits
NEGLIGIBLE = 1e-3  # a smaller share without an interval is written as "< 0.1 %"
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# {base unit: [from, divided by, symbol] in falling order}
UNITS = tomllib.loads(Path(__file__).with_name("units.toml").read_text(encoding="utf-8"))


class FormatError(ValueError):
    """A value cannot be written in the requested form."""

    exit_code = 2


def number(value: float) -> str:
    """A number in a table: four significant digits, all digits from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def first_names(names: Sequence[str], most: int = 3) -> str:
    """`one, two, three and 4 more`."""
    return ", ".join(names[:most]) + f" and {len(names) - most} more" * (len(names) > most)


def bracketed(value: float, low: float, high: float, write: Callable[[float], str] = "{:.3g}".format) -> str:
    """`92.1 [90.3, 93.8]`; the value alone without an interval, nothing without a value."""
    if math.isnan(value):
        return ""
    return write(value) if math.isnan(low) else f"{write(value)} [{write(low)}, {write(high)}]"


def scheme(parallel: str) -> str:
    """`DDP`, or `no group` for one process without a process group."""
    return "no group" if parallel == "none" else parallel.upper()


def where(runs: pd.DataFrame) -> str:
    """`Slurm jobs 16 to 38, 41, 2026-11-24`, `directly on the machine, 2026-11-24`, or `imported, not measured here: v100`."""
    if sets := identity.imported_sets(runs.hardware_id):
        return f"imported, not measured here: {', '.join(sets)}"
    dates = " to ".join(sorted({str(day)[:10] for day in (runs.started.min(), runs.started.max())}))
    jobs = set(runs.job_id.dropna().astype(int))
    if not jobs:
        return f"directly on the machine, {dates}"
    direct_runs = runs.job_id.isna().sum()
    return f"Slurm jobs {ranges(jobs)}, {dates}" + (
        f"; {counted(direct_runs, 'run')} directly on the machine" if direct_runs else ""
    )


def ranges(numbers: set[int]) -> str:
    """`16 to 38, 41`."""
    starts, ends = (sorted(number for number in numbers if number + step not in numbers) for step in (-1, 1))
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in zip(starts, ends, strict=True))


def aligned(lines: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Lines of cells in columns for a terminal, those of `right` aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = [">" if place in right else "<" for place in range(len(widths))]
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [form.format(*line).rstrip() for line in lines]


def text(value: Value, form: str = "value") -> str:
    """A value as text.

    Args:
        form: "value": `72.3 %`. "interval": `72.3 % [63.9, 80.8]`, or the number of repeats where there is no interval.
            "low", "high", "repeats". "bare": without the unit. "cell": number and interval without the unit.

    The digits follow the interval: two significant digits of its half width, and at least two of a value whose interval excludes 0. A
    value without an interval has three. An end has at least one.

    Raises:
        FormatError: there is no such form, or the value has no interval.
    """
    if form not in FORMS:
        raise FormatError(f"{value.name}|{form}: no such form; there are {', '.join(FORMS)}")
    if form == "repeats":
        return _grouped(value.repeats, 0)
    if form in ("low", "high") and (isinstance(value.value, str) or not value.has_interval):
        raise FormatError(f"{value.name}|{form}: it has no interval; use {{{{{value.name}|interval}}}}")
    if isinstance(value.value, str):
        return value.value
    divisor, power, symbol = _scale(value)
    places = _decimals(value, divisor, power)
    unit = "".join(FIXED + part for part in (power, symbol) if part)
    if form in ("low", "high"):
        return _end(getattr(value, form) / divisor, places) + unit
    written = _grouped(value.value / divisor, places)
    if value.unit == "share" and not value.has_interval and 0 < value.value < NEGLIGIBLE:
        written = f"<{FIXED}{_grouped(NEGLIGIBLE / 0.01, 1)}"
        power = ""
        unit = FIXED + "%"
    power = power and FIXED + power
    if form == "bare":
        return written + power
    if form == "value":
        return written + unit
    if not value.has_interval:
        missing = {0: "", 1: " (a single run)"}.get(value.repeats, f" ({value.repeats} repeats, no interval)")
        return written + unit + missing
    low, high = (_end(end / divisor, places) for end in (value.low, value.high))
    interval = f" [{low},{FIXED}{high}]"  # a line may end before it
    if form == "cell":
        return written + interval + power
    interval += f" ({value.span})" if value.span else ""
    return f"({written}{interval}){unit}" if power else written + unit + interval


def quantity(value: float, unit: str, **interval: float) -> str:
    """A number that is not a cited cell, with its interval if `interval` has low, high and repeats."""
    return text(Value("", value, unit, "", **interval), "interval")


def _scale(value: Value) -> tuple[float, str, str]:
    """(divisor, power of ten behind the number, symbol): `6.9 × 10⁻⁵` rather than `0.000069`."""
    size = abs(value.value)
    steps = UNITS.get(value.unit, [(0, 1, value.unit)])
    _, divisor, symbol = next((step for step in steps if size >= step[0]), steps[-1])
    size /= divisor
    if not 0 < size < TINY or (value.has_interval and max(abs(value.low), abs(value.high)) >= TINY * divisor):
        return divisor, "", symbol
    exponent = int(f"{size:.1e}".split("e")[1])
    return divisor * 10.0**exponent, f"×{FIXED}10{str(exponent).translate(RAISED)}", symbol


def _decimals(value: Value, divisor: float, power: str) -> int:
    """Digits after the point; negative rounds to tens, hundreds, ..."""
    size = abs(value.value) / divisor
    half = (value.high - value.low) / 2 / divisor if value.has_interval else 0.0
    if value.unit == "count":
        return 0
    if half > 0 and math.isfinite(half):
        places = _places(half, CERTAIN)
        if size > 0 and value.low * value.high > 0:  # else the quantity may be 0
            places = max(places, _places(size, CERTAIN))
        return min(places, max(_places(size, 5), 0)) if size > 0 else places  # five significant digits at most
    return 0 if float(size).is_integer() else max(_places(size, POWER_DIGITS if power else SIGNIFICANT), 0)


def _end(end: float, places: int) -> str:
    return _grouped(end, max(places, _places(abs(end), 1)) if end else places)


def _places(size: float, digits: int) -> int:
    """Decimals with which `size`, once rounded (0.0999 is 0.10), has this many significant digits."""
    return digits - 1 - int(f"{size:.{digits - 1}e}".split("e")[1])


def _grouped(value: float, places: int) -> str:
    """`12 345.6`, with a thin unbreakable space from five digits on, and a minus sign."""
    rounded = round(value, places)
    digits, point, part = f"{abs(rounded):.{max(places, 0)}f}".partition(".")
    if len(digits) > 4:
        digits = f"{int(digits):,}".replace(",", NARROW)
    return (MINUS if rounded < 0 else "") + digits + point + part
