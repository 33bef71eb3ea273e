"""The catalogue of quantities (`quantities.toml`): unit, label and meaning of a table's column, wherever it is drawn or shown."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import paths

from .formatting import UNITS

if TYPE_CHECKING:
    import pandas as pd

BINARY = {"MiB": 2**20, "GiB": 2**30}
UNNAMED = ("ratio", "count", "text")  # units without a symbol


@dataclass(frozen=True)
class Quantity:
    """`unit`: of its column. `axis`: where it is drawn or shown, "" for the same. `label`: in words. `means`: what it is."""

    unit: str
    means: str = ""
    axis: str = ""
    label: str = ""

    @property
    def divisor(self) -> float:
        """The unit at the axis, in units of the column."""
        symbols = {symbol: divisor for _, divisor, symbol in UNITS.get(self.unit, ())} | BINARY
        return symbols[self.axis] if self.axis else 1

    @property
    def title(self) -> str:
        """`throughput (samples/s)`: of an axis or a shown column."""
        unit = self.axis or ("" if self.unit in UNNAMED or self.unit.replace("-", " ") == self.label else self.unit)
        return f"{self.label} ({unit})" if unit else self.label


@functools.cache
def catalogue() -> Mapping[str, Quantity]:
    """{column: its quantity}, those of the companions included.

    Raises:
        ValueError: two files declare a name differently, or a unit is unknown.
    """
    quantities = {}
    files = [Path(__file__).with_suffix(".toml"), *sorted(paths.root().glob("companions/*/quantities.toml"))]
    for file in files:
        for name, declared in tomllib.loads(file.read_text()).items():
            quantity = Quantity(**{"label": name.replace("_", " ")} | declared)
            if quantity.unit not in UNITS:
                raise ValueError(f"{file}: the unit {quantity.unit} of {name!r} is not in publish/units.toml")
            if quantities.setdefault(name, quantity) != quantity:
                raise ValueError(
                    f"{file} declares {name!r} otherwise than another quantities.toml: rename the column"
                )
    return quantities


def quantity(column: str) -> Quantity:
    """The quantity of a column, or of the end of its interval. One that is not declared is a ratio, or, named <name>_ns, a time."""
    stem = column.removesuffix("_low").removesuffix("_high")
    if stem.endswith("_ns"):
        return Quantity("ns", axis="ms", label=stem.removesuffix("_ns").replace("_", " "))
    return catalogue().get(stem) or Quantity("ratio", label=stem.replace("_", " "))


def unit_of(column: str, values: pd.Series) -> str:
    """The unit of a table's column: "text" for words, that of `catalogue`, else "count" for whole numbers, and "" if it is unknown."""
    import pandas as pd

    stem = column.removesuffix("_low").removesuffix("_high")
    if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
        return "text"
    if stem in catalogue():
        return catalogue()[stem].unit
    return "count" if (values.dropna() % 1 == 0).all() else ""
