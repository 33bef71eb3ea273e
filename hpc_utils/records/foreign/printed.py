"""Numbers as somebody printed them: the value, and how far rounding lets the true one lie from it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
# An integer's trailing zeros may be rounding's (12300 for 12345.6), though hardly before the third digit; and where
# programs write exponents they leave zeros out (1e+03 for 1000.2).
LEAST_DIGITS = 3


@dataclass(frozen=True)
class Printed:
    """A positive number and its `slack`: |log(true / value)| is at most that. Slacks add up in products and ratios."""

    value: float
    slack: float = 0.0

    def __mul__(self, other: Printed) -> Printed:
        return Printed(self.value * other.value, self.slack + other.slack)

    def __truediv__(self, other: Printed) -> Printed:
        return Printed(self.value / other.value, self.slack + other.slack)


def number(text: str, decimal: str = ".", thousands: str = "") -> Printed:
    """The number that `text` prints, true to half a unit of its last significant digit.

    Raises:
        ValueError: it is none, or not finite.
    """
    plain = _plain(text.strip(), decimal, thousands)
    if not NUMBER.fullmatch(plain) or not math.isfinite(value := float(plain)):
        raise ValueError(f"{text!r} is not a number")
    return Printed(value, _slack(plain, value))


def _plain(text: str, decimal: str, thousands: str) -> str:
    """`text` as Python writes numbers; no number if it does not keep to the marks."""
    if thousands:
        text = re.sub(r"[\u00a0\u202f]", " ", text) if thousands == " " else text
        whole, mark, rest = text.partition(decimal)
        if thousands in whole and re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(thousands)}\d{{3}})+", whole, re.ASCII):
            text = whole.replace(thousands, "") + mark + rest
    if decimal != ".":
        return "" if "." in text else text.replace(decimal, ".", 1)
    return text


def _slack(plain: str, value: float) -> float:
    if not value:
        return 0.0
    _, digits, exponent = Decimal(plain).as_tuple()
    if exponent in (0, -1) and value.is_integer():  # .0 is how programs write any whole number
        while len(digits) > LEAST_DIGITS and digits[-1] == 0:
            digits, exponent = digits[:-1], exponent + 1
    elif "e" in plain.lower():
        exponent -= max(0, LEAST_DIGITS - len(digits))
    share = 0.5 * 10.0**exponent / abs(value)
    return -math.log1p(-share) if share < 1 else math.inf
