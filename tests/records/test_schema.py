from __future__ import annotations

import pytest

from hpc_utils.records import schema


@pytest.mark.parametrize("table", schema.TABLES)
def test_columns_are_named_once_and_explained(table: str) -> None:
    columns = schema.TABLES[table]
    names = schema.names(columns)
    assert len(set(names)) == len(names)
    assert all(column.meaning and "|" not in column.meaning for column in columns)
