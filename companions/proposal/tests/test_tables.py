"""The resource table of a proposal."""

from __future__ import annotations

import pandas as pd

from companions.proposal.tables import study_table


def test_a_study_is_a_row_with_its_package_and_the_total_is_the_last() -> None:
    ends = {f"{name}{end}": value for name in ("node_hours", "device_hours") for end, value in
            (("", 12.34), ("_low", 5.6), ("_high", 1234.5))}  # fmt: skip
    study = {"study": "wide", "runs": 45, "nodes": 32, "devices": 128, "basis": "operations"} | ends
    table = study_table(pd.DataFrame([study, study | {"study": "Total"}]), {"wide": "WP4"})
    first, last = table.astype(str).values.tolist()
    assert first == ["WP4", "wide", "45", "32 x 4", "12.3 [5.6, 1,234]", "12.3 [5.6, 1,234]", "operations"]
    assert last[:4] == ["", "Total", "45", ""]
