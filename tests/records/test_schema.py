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


def test_the_markdown_has_every_column_of_every_table_under_its_heading() -> None:
    parts = schema.markdown().split("### ")[1:]
    assert len(parts) == len(schema.TABLES)
    for (table, columns), part in zip(schema.TABLES.items(), parts, strict=True):
        assert table in part.splitlines()[0]
        rows = [line for line in part.splitlines() if line.startswith("| `")]
        assert [row.split("`")[1] for row in rows] == schema.names(columns)
        assert all(row.count("|") == 4 for row in rows)
