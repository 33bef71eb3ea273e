"""What `make bench` left as named values: `bench.loaders.digits-batch-128.ours-loader-device`, with `.ratio`."""

from __future__ import annotations

import pandas as pd

from hpc_utils.analyze.value import Value

from .naming import slug

# Its units in ours: (unit, factor).
UNITS = {
    "ms": ("s", 1e-3), "s": ("s", 1.0), "GFLOP/s": ("flop/s", 1e9), "GB/s": ("B/s", 1e9), "images/s": ("samples/s", 1.0),
    "MB": ("B", 1e6), "MiB": ("B", 2**20), "%": ("share", 1e-2), "": ("ratio", 1.0),
}  # fmt: skip


def table(bench: pd.DataFrame, file: str) -> list[Value]:
    """Each row's median, and over its reference `.ratio` (no 95 % interval stands in these tables; their CSV has the extremes). `file`: the table's name in `bench/`."""
    stem, found, seen = slug(file.removesuffix(".csv")), [], set()
    for row in bench.to_dict("records"):
        name = ".".join(["bench", stem, *filter(None, (slug(row[part]) for part in ("case", "variant")))])
        name += f".{slug(row['metric'])}" if name in seen else ""
        seen.add(name)
        unit, scale = UNITS.get(_text(row["unit"]), (_text(row["unit"]), 1.0))
        what = f"{str(row['metric']).capitalize()} of {row['variant']} ({row['case']})"
        against = f"over {row['reference']}'s ({row['case']})"
        ours = {"repeats": int(row["repeats"]), "files": (f"bench/{file}",)}
        for end, column, own, factor, says in (
            ("", "median", unit, scale, f"{what}, median."),
            (".ratio", "ratio", "ratio", 1.0, f"{what} {against}, median of the repeats' ratios."),
        ):
            if pd.notna(row[column]):
                found.append(Value(name + end, float(row[column]) * factor, own, says, **ours))
    return found


def _text(value) -> str:
    return "" if pd.isna(value) else str(value)
