"""How a value is written: its digits, its unit, its interval. Every document, table and page uses this."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_utils.analyze.value import Value

NARROW = "\u202f"  # unbreakable, between groups of thousands
FIXED = "\u00a0"  # unbreakable, between number and unit
MINUS = "\u2212"
FORMS = ("value", "interval", "low", "high", "repeats", "bare", "cell")
SIGNIFICANT = 3  # digits of a value without interval
TINY, POWER_DIGITS = 1e-3, 2  # what is smaller in its unit gets a power of ten, and so many digits
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NEGLIGIBLE = 1e-3  # a share below it is printed as that, if no interval says how sure it is
CERTAIN = 2  # digits of an interval's half width: more would be noise


@dataclass(frozen=True)
class Unit:
    """How a base unit is printed: the first of `steps` (from, divided by, symbol) whose `from` the size reaches."""

    steps: tuple[tuple[float, float, str], ...]
    whole: bool = False  # counted, never a fraction
    says: str = ""

    def step(self, size: float) -> tuple[float, str]:
        """(divisor, symbol) for a size in the base unit."""
        for least, divisor, symbol in self.steps:
            if size >= least:
                return divisor, symbol
        return self.steps[-1][1:]


def _plain(symbol: str, says: str = "") -> Unit:
    return Unit(((0, 1, symbol),), says=says)


def _scaled(symbol: str, says: str, first: str = "k") -> Unit:
    """With SI prefixes from kilo to peta."""
    prefixes = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, first), (1, ""))
    return Unit((*((scale, scale, name + symbol) for scale, name in prefixes), (0, 1, symbol)), says=says)


UNITS: dict[str, Unit] = {
    "share": Unit(((0, 0.01, "%"),), says="a part of one, printed in percent"),
    "points": Unit(((0, 0.01, "points"),), says="percentage points: a difference of two shares"),
    "ratio": Unit(((0, 1, ""),), says="how many times as much; the sentence says `times` or `a factor of`"),
    "count": Unit(((0, 1, ""),), whole=True, says="a number of things"),
    "text": _plain("", "words, printed as they are"),
    "s": Unit(
        ((7200, 3600, "h"), (120, 60, "min"), (1, 1, "s"), (1e-3, 1e-3, "ms"), (1e-6, 1e-6, "µs"), (0, 1e-9, "ns")),
        says="seconds",
    ),
    "s/B": Unit(
        ((1, 1, "s/B"), (1e-3, 1e-3, "ms/B"), (1e-6, 1e-6, "µs/B"), (0, 1e-9, "ns/B")), says="seconds a byte"
    ),
    "B": _scaled("B", "bytes, in powers of 1000"),
    "B/s": _scaled("B/s", "bytes a second"),
    "bit/s": _scaled("bit/s", "bits a second"),
    "flop/s": _scaled("flop/s", "floating-point operations a second"),
    "flop": _scaled("flop", "floating-point operations"),
    "samples/s": _plain("samples/s", "samples a second"),
    "device-hours": _plain("device-hours", "devices times hours"),
    "node-hours": _plain("node-hours", "nodes times hours"),
    "core-hours": _plain("core-hours", "processor cores times hours"),
    "kWh": Unit(((1, 1, "kWh"), (1e-3, 1e-3, "Wh"), (0, 1e-6, "mWh")), says="kilowatt-hours"),
    "W": _plain("W", "watts"),
    "ms": _plain("ms", "milliseconds"),
    "person-months": _plain("person-months", "work of one person in a month"),
    "EUR": _plain("EUR", "euros"),
}
BILLED = re.compile(
    r"[A-Za-z]+-hours|[A-Z]{2,4}"
)  # what a site bills in: hours of something, a currency, its own units


def is_known(unit: str) -> bool:
    """Whether `unit` is declared here, or one that sites bill in."""
    return unit in UNITS or BILLED.fullmatch(unit) is not None


def text(value: Value, form: str = "value") -> str:
    """`72.3 %`; as "interval" `72.3 % [63.9, 80.8]`; "low", "high"; "repeats"; "bare" is without the unit;
    "cell" is the number with its interval alone, for a table whose heading says the rest.

    Digits follow the interval: two significant digits of its half width. A value without one has three, and one that
    rests on a single run says so in the interval form. A share without one below 0.1 % is `< 0.1 %`.

    Raises:
        AmountError: no such form, or an end of an interval that the value does not have.
    """
    if form not in FORMS:
        raise AmountError(f"{value.name}|{form}: no such form; there are {', '.join(FORMS)}")
    if form == "repeats":
        return _grouped(value.repeats, 0)
    if isinstance(value.value, str):
        if form in ("low", "high"):
            raise AmountError(f"{value.name}|{form}: words have no interval")
        return value.value
    if not math.isfinite(value.value):
        return "not known" if math.isnan(value.value) else "unlimited"
    divisor, times, symbol = _scale(value)
    places = decimals(value)
    known = value.has_interval
    symbol = f"{times}{FIXED}{symbol}" if times and symbol else times or symbol
    if form in ("low", "high"):
        if not known:
            raise AmountError(f"{value.name}|{form}: it has no interval; use {{{{{value.name}|interval}}}}")
        return _joined(_grouped((value.low if form == "low" else value.high) / divisor, places), symbol)
    number = _grouped(value.value / divisor, places)
    if value.unit == "share" and not known and 0 < value.value < NEGLIGIBLE:
        number, times, symbol = f"<{FIXED}{_grouped(NEGLIGIBLE / 0.01, 1)}", "", "%"
    if form == "bare":
        return number + times
    written = _joined(number, symbol)
    if form == "value":
        return written
    if known:
        ends = [_grouped(end / divisor, places) for end in (value.low, value.high)]
        told = f" [{ends[0]},{FIXED}{ends[1]}]"
        if form == "cell":
            return number + told + times
        told += f" ({value.span})" if value.span else ""
        # A line may end before the interval.
        return f"({number}{told})" + symbol if times else written + told
    return written + {0: "", 1: " (a single run)"}.get(value.repeats, f" ({value.repeats} repeats, no interval)")


def quantity(number: float, unit: str) -> str:
    """A number that is no cell (a total in a colophon), written as one without an interval."""
    from hpc_utils.analyze.value import Value

    return text(Value("a.total", number, unit, ""))


def decimals(value: Value) -> int:
    """Digits after the point as printed, in the unit printed; negative rounds to tens, hundreds, ..."""
    divisor, times, _ = _scale(value)
    size = abs(value.value) / divisor
    if _unit(value.unit).whole:
        return 0
    half = (value.high - value.low) / 2 / divisor if value.has_interval else 0.0
    if half > 0 and math.isfinite(half):
        places = _last(half, CERTAIN)
        # A measurement that repeats to the sixth digit is still printed with no more than five.
        return min(places, max(_last(size, 5), 0)) if size > 0 else places
    if size == 0 or not math.isfinite(size) or float(size).is_integer():
        return 0
    return max(_last(size, POWER_DIGITS if times else SIGNIFICANT), 0)


def _scale(value: Value) -> tuple[float, str, str]:
    """(divisor, power of ten as written behind the number, symbol): `6.9 × 10⁻⁵` rather than `0.000069`."""
    divisor, symbol = _unit(value.unit).step(abs(value.value))
    size = abs(value.value) / divisor
    if not 0 < size < TINY or (value.has_interval and max(abs(value.low), abs(value.high)) >= TINY * divisor):
        return divisor, "", symbol
    power = int(f"{size:.1e}".split("e")[1])
    return divisor * 10.0**power, f"{FIXED}×{FIXED}10{str(power).translate(RAISED)}", symbol


def _last(size: float, digits: int) -> int:
    """Decimals with which `size` has so many significant digits, once it is rounded to them (0.0999 is 0.10)."""
    exponent = int(f"{size:.{digits - 1}e}".split("e")[1])
    return digits - 1 - exponent


def _unit(name: str) -> Unit:
    return UNITS.get(name) or _plain(name)


def _joined(number: str, symbol: str) -> str:
    return number + (symbol if symbol.startswith(FIXED) else FIXED + symbol if symbol else "")


def _grouped(number: float, places: int) -> str:
    """`12 345.6` with thin unbreakable spaces from five digits on, and a real minus sign."""
    rounded = round(number, places)
    written = f"{abs(rounded):.{max(places, 0)}f}"
    whole, point, part = written.partition(".")
    if len(whole) > 4:
        whole = f"{int(whole):,}".replace(",", NARROW)
    sign = MINUS if rounded < 0 else ""
    return sign + whole + point + part


class AmountError(ValueError):
    """A value cannot be written in the form asked for."""

    exit_code = 2
