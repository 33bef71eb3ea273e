"""A number that a text cites, with its interval, unit and source."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """One quantity that was measured, computed from measurements, or counted.

    Attributes:
        name: its cell, as a text cites it.
        value: in base units (a share of 1, seconds, bytes, samples per second), or a word.
        unit: as `publish.formatting` prints it: share, ratio, count, text, s, B, ...
        caption: one sentence about the meaning of the number, without the number.
        low, high: the 95 % interval (or `span`); NaN where there is none.
        repeats: the fewest independent repeats behind it; 0 for what no repeat could change (a count, a setting, a fit).
        runs: ids of the runs that it rests on.
        files: other evidence, relative to the result set; `profile:NAME` is a third-party profile, `project:PATH` a file
            of the clone.
        span: what low and high are where they are no 95 % interval, such as "allowance".

    Raises:
        ValueError: the number is not finite, half an interval, or one that does not hold the value.
    """

    name: str
    value: float | str
    unit: str
    caption: str
    low: float = math.nan
    high: float = math.nan
    repeats: int = 0
    runs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    span: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.value, str) != (self.unit == "text"):
            raise ValueError(
                f"{self.name}: a word has the unit 'text', and only a word ({self.value!r}, {self.unit!r})"
            )
        if self.unit == "text":
            return
        if not math.isfinite(self.value):
            raise ValueError(f"{self.name} is {self.value}: a value is a finite number")
        if math.isnan(self.low) != math.isnan(self.high) or self.low > self.high:
            raise ValueError(f"{self.name}: [{self.low}, {self.high}] is no interval")
        rounding = 1e-9 * max(abs(self.low), abs(self.high))  # between two ways to compute a number
        if self.has_interval and not self.low - rounding <= self.value <= self.high + rounding:
            raise ValueError(f"{self.name}: {self.value} lies outside its own interval, [{self.low}, {self.high}]")

    @property
    def has_interval(self) -> bool:
        """Whether it was measured often enough to have one."""
        return not math.isnan(self.low)
