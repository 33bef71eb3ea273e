from __future__ import annotations

import pytest

from hpc_utils.records import schema


@pytest.mark.parametrize("table", schema.TABLES)
def test_columns_are_named_once_and_explained(table: str) -> None:
    columns = schema.TABLES[table]
    names = schema.names(columns)
    assert len(set(names)) == len(names)
    assert all(column.meaning and "|" not in column.meaning for column in columns)


def test_every_time_and_size_states_its_unit() -> None:
    units = {"seconds": "s", "bytes": "B", "samples": "sample"}
    for column in (column for columns in schema.TABLES.values() for column in columns):
        kind = column.name.rpartition("_")[2]
        if kind in units:
            assert column.unit == units[kind], column
