"""Tables as text: any table with units and intervals, and those declared as {heading: writer of its cells}."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd

from hpc_utils.analyze import stats
from hpc_utils.analyze.scaling import curve_names
from hpc_utils.analyze.value import Value
from hpc_utils.provenance.system import markdown_table
from hpc_utils.records.identity import SAME, task

from .exports import BEHIND
from .formatting import ABSENT, UNITS, number, scheme, text
from .plots import drawing
from .quantities import catalogue, quantity

Row = Mapping[str, Any]
Writer = Callable[[Row], str]
MOST_ROWS = 60  # of a shown table
MOST_COLUMNS = 8
LINE_LETTERS = 24  # of a text in a cell; more if it would take more than `MOST_LINES`
MOST_LINES = 4


def text_table(rows: pd.DataFrame, columns: Mapping[str, Writer]) -> pd.DataFrame:
    """A table of text: a row for each of `rows`, a column for each heading of `columns`."""
    records = rows.to_dict("records")
    return pd.DataFrame({heading: [write(row) for row in records] for heading, write in columns.items()}, dtype=str)


def measured(column: str, scale: float = 1.0) -> Writer:
    """Writes `column` times `scale` with its interval (`<column>_low`, `<column>_high`), or "single run"."""

    def write(row: Row) -> str:
        value, low, high = (row[name] for name in stats.columns(column))
        if pd.isna(value):
            return ABSENT
        interval = f" ({number(low * scale)} to {number(high * scale)})" if pd.notna(low) else ""
        is_single = row["repeats"] == 1 and not interval
        return number(value * scale) + interval + (" (single run)" if is_single else "")

    return write


def readable(data: pd.DataFrame, columns: Sequence[str] = (), measure: str = "") -> tuple[str, str]:
    """A table, or its `columns`, for a reader, as HTML and as text: headings with units, numbers with their intervals.

    Of more than `MOST_COLUMNS`, those that are equal in all rows become a line, and the rest is folded below the table.
    `measure`: the column whose unit each row names in the column `unit`, if there is one.
    """
    hidden = {column for column in data if column in BEHIND or column.endswith(("_low", "_high", "_runs"))}
    names = list(columns) or [column for column in data if column not in hidden]
    by_row = measure if measure in names and "unit" in data else ""
    names = [name for name in names if name != "unit" or not by_row]
    headings = [_heading(name, data[name], name == by_row) for name in names]
    rows = data.head(MOST_ROWS).to_dict("records")
    cells = pd.DataFrame([[_cell(row, name, name == by_row) for name in names] for row in rows], columns=headings)
    by_heading = dict(zip(headings, names, strict=True))
    words = [heading for heading, name in by_heading.items() if not pd.api.types.is_numeric_dtype(data[name])]
    table = _folded(cells, words)
    for heading, name in by_heading.items():
        shown = re.escape(escape(heading))
        table = re.sub(f"<th([^>]*>{shown}</th>)", rf'<th title="{quantity(name).means}"\1', table, count=1)
    more = f"\n({len(data) - MOST_ROWS} further rows)" if len(data) > MOST_ROWS else ""
    return table + more, cells.to_string(index=False) + more


def _folded(cells: pd.DataFrame, words: Sequence[str]) -> str:
    equal = cells.nunique().eq(1) if cells.shape[1] > MOST_COLUMNS and len(cells) > 1 else []
    common = [f"{heading} {escape(values.iloc[0])}" for heading, values in cells.loc[:, equal].items()]
    line = f"<p>In all rows: {', '.join(common)}.</p>" if common else ""
    cells = cells.drop(columns=cells.columns[equal])
    shown = line + html(cells.iloc[:, :MOST_COLUMNS], words)
    if cells.shape[1] > MOST_COLUMNS:
        further = cells.iloc[:, [0, *range(MOST_COLUMNS, cells.shape[1])]]
        names = ", ".join(further.columns[1:])
        shown += f"<details><summary>Further columns: {names}</summary>{html(further, words)}</details>"
    return shown


def html(cells: pd.DataFrame, words: Iterable[str]) -> str:
    """A table of text as HTML. Columns with the headings `words` are aligned to the left and wrap; numbers are, by the page's style,
    aligned to the right."""
    cells = cells.astype(str)
    letters = {heading: max(map(len, cells[heading]), default=0) for heading in words if heading in cells}
    # A letter is half as wide as high.
    widths = {heading: min(most, max(LINE_LETTERS, most / MOST_LINES)) / 2 for heading, most in letters.items()}
    style = ' style="text-align: left; min-width: {:g}em"'.format
    styles = [style(widths[heading]) if heading in widths else "" for heading in cells]

    def line(tag: str, texts: Iterable[str]) -> str:
        inner = (f"<{tag}{style}>{escape(text)}</{tag}>" for style, text in zip(styles, texts, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    body = "\n".join(line("td", row) for row in cells.to_numpy())
    return f'<table class="dataframe">\n<thead>{line("th", cells)}</thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def _heading(column: str, values: pd.Series, by_row: bool) -> str:
    if not pd.api.types.is_numeric_dtype(values):
        return column.replace("_", " ")
    return quantity(column).label if by_row or _is_scaled(column) else quantity(column).title


def _is_scaled(column: str) -> bool:
    """Whether each cell has a unit of its own: the quantity has several, and none at the axis."""
    return not quantity(column).axis and len(UNITS.get(quantity(column).unit, ())) > 1


def _cell(row: Row, column: str, by_row: bool) -> str:
    value = row[column]
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if pd.isna(value):
        return ABSENT
    if isinstance(value, bool | np.bool_) or not isinstance(value, Number) or not np.isfinite(value):
        return str(value)
    if column not in catalogue() and not by_row:
        return number(value / quantity(column).divisor)
    ends = [row.get(f"{column}_{end}", np.nan) for end in ("low", "high")]
    if by_row or _is_scaled(column):
        unit = row["unit"] if by_row else quantity(column).unit
        return text(Value("", value, unit, "", *ends), "interval")
    value, low, high = (number / quantity(column).divisor for number in (value, *ends))
    return text(Value("", value, "ratio", "", low, high), "cell")


def plain(column: str) -> Writer:
    """Writes the number or the text in `column`."""

    def write(row: Row) -> str:
        value = row[column]
        return ABSENT if pd.isna(value) else value if isinstance(value, str) else f"{value:g}"

    return write


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
    return (
        f"{row['world_size']}"
        if row["world_size"] > 1 or pd.isna(row["parallel"])
        else f"1 ({scheme(row['parallel'])})"
    )


def _throughput(row: Row) -> str:
    if row["state"] != "measured":
        return f"{row['state']}: {row['why']}" if row["why"] else row["state"]
    return measured("throughput")(row)


WORKSHOP: dict[str, Writer] = {
    "curve": plain("curve_name"),
    "devices": _devices,
    "nodes x ranks": plain("layout"),
    "batch per device": plain("batch_per_device"),
    "global batch": plain("global_batch"),
    "throughput (samples/s)": _throughput,
    "time per step (ms)": measured("step_seconds", 1e3),
    "time per epoch (s)": measured("epoch_seconds"),
    "baseline": plain("baseline"),
    "speed-up": measured("speedup"),
    "efficiency (%)": measured("efficiency", 100),
    "peak memory per device (MiB)": measured("peak_bytes", 1 / 2**20),
}


def workshop(rows: pd.DataFrame) -> pd.DataFrame:
    """`analyze.scaling.workshop` as text, a column for each question, with 95 % intervals."""
    return text_table(rows.assign(curve_name=curve_names(rows)), WORKSHOP)


COMPARISON: dict[str, Writer] = {
    "Configuration": lambda row: row["configuration"],
    "Throughput (samples/s)": measured("throughput"),
    "Time/Epoch (s)": measured("epoch_seconds"),
    "Accuracy (%)": lambda row: measured("learned", 100)(row) if row["metric"] == "test_accuracy" else ABSENT,
    "Peak memory/device": lambda row: _memory(row),
    "Speedup": measured("speedup"),
}
LABELLED = ["workload", "dataset", "precision", "world_size", "parallel", "batch_per_device"]


def comparison(rows: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """`analyze.scaling.comparison` as text, each configuration with what tells it apart; and its caption, which names the reference."""
    rows, names = drawing.apart(rows, LABELLED, ("layout", "steps_per_epoch", *SAME))
    labels = [_configuration(row._asdict()) + drawing.more(row, names) for row in rows.itertuples()]
    rows = rows.assign(configuration=labels)
    references = "; ".join(rows.configuration[rows.is_reference.eq(True)])
    over = f" over {references}" if references else ""
    return text_table(rows, COMPARISON), f"Throughput, time, accuracy and speed-up{over}."


def _memory(row: Row) -> str:
    """`455 MiB, 3 % of 16 GiB`."""
    if pd.isna(row["peak_bytes"]):
        return ABSENT
    share = row["peak_bytes"] / (row["device_bytes"] or np.nan)
    of_device = "" if pd.isna(share) else f", {100 * share:.2g} % of {number(row['device_bytes'] / 2**30)} GiB"
    return f"{number(row['peak_bytes'] / 2**20)} MiB{of_device}"


def _configuration(row: Row) -> str:
    group = scheme(row["parallel"])
    trained = task({**row, "settings": ""})  # they are named apart
    return f"{trained}, {row['precision']}, {row['world_size']} ({group}) x {row['batch_per_device']:g}"
