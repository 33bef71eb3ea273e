"""Tables as text for Markdown and CSV: numbers with their intervals."""

from __future__ import annotations

import pandas as pd

from . import formatting

MIB = 2**20
ABSENT = "–"


def workshop(rows: pd.DataFrame) -> pd.DataFrame:
    """`analyze.scaling.workshop` as text, one column an answer; the interval (95 %) or "single run" behind each number."""
    single = rows.repeats == 1
    table = pd.DataFrame(
        {
            "curve": [curve(row) for row in rows.itertuples()],
            "devices": [_devices(row) for row in rows.itertuples()],
            "nodes x ranks": rows.layout.fillna(ABSENT),
            "batch per device": _plain(rows.batch_per_device),
            "global batch": _plain(rows.global_batch),
            "throughput (samples/s)": measured(rows, "throughput", single),
            "time per step (ms)": measured(rows, "step_seconds", single, scale=1e3),
            "time per epoch (s)": measured(rows, "epoch_seconds", single),
            "speed-up": measured(rows, "speedup", single & (rows.world_size > 1)),
            "efficiency (%)": measured(
                rows.rename(columns={"low": "efficiency_low", "high": "efficiency_high"}),
                "efficiency",
                single & (rows.world_size > 1),
                scale=100,
            ),
            "peak memory per device (MiB)": measured(rows, "peak_bytes", single, scale=1 / MIB),
        },
        dtype=str,
    )
    unmeasured = (rows.state != "measured").to_numpy()
    said = rows.state.where(rows.why == "", rows.state + ": " + rows.why)
    table.loc[unmeasured, "throughput (samples/s)"] = said[unmeasured]
    return table


def markdown(table: pd.DataFrame) -> str:
    """A table of text as Markdown."""
    lines = [table.columns.tolist(), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def measured(rows: pd.DataFrame, name: str, single: pd.Series, *, scale: float = 1.0) -> list[str]:
    """Column `name` times `scale`, with its interval (columns `_low`, `_high`), or "single run" where `single` says so."""
    found = []
    ends = zip(rows[name], rows[f"{name}_low"], rows[f"{name}_high"], single, strict=True)
    for value, low, high, alone in ends:
        if pd.isna(value):
            found.append(ABSENT)
            continue
        text = formatting.number(value * scale)
        if pd.notna(low):
            text += f" ({formatting.number(low * scale)} to {formatting.number(high * scale)})"
        found.append(text + (" (single run)" if alone else ""))
    return found


def curve(row) -> str:
    """`strong, batch 768, resnet18 on cifar10, fp32`: which curve a row is of."""
    batch = f"batch {row.batch:g}" if row.kind == "strong" else f"{row.batch:g} a device"
    what = f"{row.workload} on {row.dataset}" if row.dataset else row.workload
    whole = ["whole epochs"] if row.kind == "weak" and pd.isna(row.steps_per_epoch) else []
    links = [] if pd.isna(row.link_gbit) else [f"{row.link_gbit:g} Gbit/s"]
    return ", ".join([row.kind, batch, what, row.precision, *whole, *links])


def _devices(row) -> str:
    if row.world_size > 1 or pd.isna(row.parallel):
        return f"{row.world_size}"
    return f"1 ({'no group' if row.parallel == 'none' else row.parallel.upper()})"


def _plain(column: pd.Series) -> list[str]:
    return [ABSENT if pd.isna(value) else f"{value:g}" for value in column]
