"""The workshop's two tables as text, as its participants fill them in."""

from __future__ import annotations

import pandas as pd

from hpc_utils.publish.tables import measured, text_table


def filled(rows: pd.DataFrame, *, epoch: int, nodes: bool) -> pd.DataFrame:
    """`analysis.one_node`, or `several_nodes` (`nodes`), with the workshop's own headings. The first row is the baseline."""
    base = "1N" if nodes else "1G"
    names = ["1 node" if nodes else rows.config[0], *rows.config[1:]]
    columns = {
        "Config": lambda row: row["name"] + {0: ": not measured", 1: " (single run)"}.get(row["runs_made"], ""),
        f"Train Loss (Epoch {epoch})": measured("loss"),
        f"Train Acc (Epoch {epoch}) (%)": measured("accuracy", 100),
        "Throughput (img/s)": measured("throughput"),
        **{f"GPU 0 {name} (MiB)": measured(f"{level}_bytes", 1 / 2**20)
           for name, level in (("Peak", "peak"), ("Avg", "mean"), ("Mode", "mode"))},
        f"Throughput Scaling vs {base}": measured("node_scaling"),
        f"Memory Avg Scaling vs {base}": measured("node_memory_scaling"),
    }  # fmt: skip
    if nodes:
        columns |= {"Throughput Scaling vs 1G": measured("throughput_scaling")}
    names[0] += " (baseline)"
    return text_table(rows.assign(name=names, runs_made=rows.repeats.fillna(0), repeats=None), columns)
