"""Tables as text, each declared as {heading: writer of its cells}: the workshop table, the comparison, and helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from hpc_utils.analyze import stats
from hpc_utils.analyze.scaling import curve
from hpc_utils.provenance.system import markdown_table
from hpc_utils.records.identity import task

from .formatting import ABSENT, number

Row = Mapping[str, Any]
Writer = Callable[[Row], str]


def text_table(rows: pd.DataFrame, columns: Mapping[str, Writer]) -> pd.DataFrame:
    """A table of text: a row for each of `rows`, a column for each heading of `columns`."""
    records = rows.to_dict("records")
    return pd.DataFrame({heading: [write(row) for row in records] for heading, write in columns.items()}, dtype=str)


def measured(column: str, scale: float = 1.0) -> Writer:
    """Writes `column` times `scale` with its interval (`<column>_low`, `<column>_high`), or "single run"."""

    def write(row: Row) -> str:
        value, low, high = (row[name] for name in stats.columns([column]))
        if pd.isna(value):
            return ABSENT
        interval = f" ({number(low * scale)} to {number(high * scale)})" if pd.notna(low) else ""
        return number(value * scale) + interval + (" (single run)" if row["repeats"] == 1 else "")

    return write


def plain(column: str) -> Writer:
    """Writes the number in `column`."""
    return lambda row: ABSENT if pd.isna(row[column]) else f"{row[column]:g}"


def markdown(rows: pd.DataFrame) -> str:
    """A table of text as Markdown."""
    return "\n".join(markdown_table(rows.columns, rows.astype(str).to_numpy())).strip()


def latex(rows: pd.DataFrame, caption: str) -> str:
    """A table of text for LaTeX (packages booktabs and graphicx), scaled down where it is wider than the page."""
    begin, end = r"\begin{tabular}", r"\end{tabular}"
    fit = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    return (
        rows.to_latex(index=False, escape=True, caption=caption)
        .replace(begin, f"{fit}\n{begin}")
        .replace(end, f"{end}}}")
    )


def _devices(row: Row) -> str:
    group = "no group" if row["parallel"] == "none" else str(row["parallel"]).upper()
    return f"{row['world_size']}" if row["world_size"] > 1 or pd.isna(row["parallel"]) else f"1 ({group})"


def _throughput(row: Row) -> str:
    if row["state"] != "measured":
        return f"{row['state']}: {row['why']}" if row["why"] else row["state"]
    return measured("throughput")(row)


WORKSHOP: dict[str, Writer] = {
    "curve": curve,
    "devices": _devices,
    "nodes x ranks": lambda row: ABSENT if pd.isna(row["layout"]) else row["layout"],
    "batch per device": plain("batch_per_device"),
    "global batch": plain("global_batch"),
    "throughput (samples/s)": _throughput,
    "time per step (ms)": measured("step_seconds", 1e3),
    "time per epoch (s)": measured("epoch_seconds"),
    "baseline": lambda row: ABSENT if pd.isna(row["baseline"]) else row["baseline"],
    "speed-up": measured("speedup"),
    "efficiency (%)": measured("efficiency", 100),
    "peak memory per device (MiB)": measured("peak_bytes", 1 / 2**20),
}


def workshop(rows: pd.DataFrame) -> pd.DataFrame:
    """`analyze.scaling.workshop` as text, a column for each question, with 95 % intervals."""
    return text_table(rows, WORKSHOP)


COMPARISON: dict[str, Writer] = {
    "Configuration": lambda row: f"{task(row)}, {row['precision']}, {_devices(row)} x {row['batch_per_device']:g}",
    "Throughput (samples/s)": measured("throughput"),
    "Time/Epoch (s)": measured("epoch_seconds"),
    "Accuracy (%)": lambda row: measured("learned", 100)(row) if row["metric"] == "test_accuracy" else ABSENT,
    "Speedup": measured("speedup"),
}
