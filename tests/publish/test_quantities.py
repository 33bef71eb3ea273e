"""The catalogue of quantities: units of columns, titles with the unit at the axis, and one declaration a name."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths
from hpc_utils.publish import formatting, quantities
from hpc_utils.records import schema

# Units of the records, in words of the catalogue.
OF_RECORDS = {"sample/s": "samples/s", "s": "s", "B": "B"}


@pytest.mark.parametrize(
    ("column", "values", "unit"),
    [
        ("speedup", [1.5], "ratio"),
        ("speedup_low", [1.5], "ratio"),
        ("power_watts_high", [1.5], "W"),
        ("anything", [1.0, math.nan], "count"),
        ("anything", [1.5], ""),
        ("speedup", ["fast"], "text"),
        ("told", [True], "text"),
    ],
)
def test_a_column_s_name_states_its_unit(column: str, values: list, unit: str) -> None:
    assert quantities.unit_of(column, pd.Series(values)) == unit


def test_a_title_has_the_unit_at_the_axis_and_a_divisor_to_it() -> None:
    found = {
        name: quantities.quantity(name)
        for name in ("efficiency", "step_seconds", "peak_bytes", "device_hours", "x_y", "idle_ns")
    }
    assert [(quantity.title, quantity.divisor) for quantity in found.values()] == [
        ("efficiency (%)", 0.01),
        ("time per step (ms)", 1e-3),
        ("peak memory (MiB)", 2**20),
        ("device hours", 1),
        ("x y", 1),
        ("idle (ms)", 1e6),
    ]


def test_every_quantity_has_a_known_unit_and_a_meaning() -> None:
    assert all(quantity.unit in formatting.UNITS and quantity.means for quantity in quantities.catalogue().values())
    assert all(math.isfinite(quantity.divisor) for quantity in quantities.catalogue().values())


def test_a_column_of_the_records_has_the_unit_of_its_records() -> None:
    units = {column.name: column.unit for table in (schema.RUNS, schema.EPOCHS) for column in table}
    shared = units.keys() & quantities.catalogue().keys()
    declared = {name: quantities.catalogue()[name].unit for name in shared if units[name] in OF_RECORDS}
    assert declared == {name: OF_RECORDS[units[name]] for name in declared} and "throughput" in declared


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ('speedup = { unit = "share", means = "another" }', "declares 'speedup' otherwise"),
        ('rate_of_mine = { unit = "GFLOP/s", means = "mine" }', "unit GFLOP/s of 'rate_of_mine'"),
    ],
)
def test_a_companion_s_wrong_declaration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, message: str
) -> None:
    folder = tmp_path / "companions/mine"
    folder.mkdir(parents=True)
    (folder / "quantities.toml").write_text(f"{declared}\n")
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    quantities.catalogue.cache_clear()
    try:
        with pytest.raises(ValueError, match=message):
            quantities.catalogue()
    finally:
        monkeypatch.undo()
        quantities.catalogue.cache_clear()


def test_the_files_declare_each_name_once() -> None:
    files = [Path(quantities.__file__).with_suffix(".toml"), *paths.root().glob("companions/*/quantities.toml")]
    names = [name for file in files for name in tomllib.loads(file.read_text())]
    assert len(names) == len(set(names)) == len(quantities.catalogue())
