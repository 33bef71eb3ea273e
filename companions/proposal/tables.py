"""The resource table of a proposal, by study."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from hpc_utils.publish import tables
from hpc_utils.publish.plan_table import interval_text


def study_table(table: pd.DataFrame, packages: Mapping[str, str]) -> pd.DataFrame:
    """A row for each study and the total (`resources.by_study`), as text; `packages`: {study: id of its package}."""

    def largest(row: tables.Row) -> str:
        return "" if row["study"] == "Total" else f"{row['nodes']} x {-(-row['devices'] // row['nodes'])}"

    columns: dict[str, tables.Writer] = {
        "Package": lambda row: packages.get(row["study"], ""),
        "Study": lambda row: row["study"],
        "Runs": lambda row: row["runs"],
        "Largest job (nodes x devices)": largest,
        "Node-hours": interval_text("node_hours"),
        "Device-hours": interval_text("device_hours"),
        "Basis": lambda row: row["basis"],
    }
    return tables.text_table(table, columns).astype({"Runs": int})
