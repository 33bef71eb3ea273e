"""The workshop's two tables as text, as its participants fill them in."""

from __future__ import annotations

import pandas as pd

from hpc_utils.publish.tables import measured, text_table


def filled(rows: pd.DataFrame, *, epoch: int, nodes: bool, formula: bool) -> pd.DataFrame:
    """`analysis.one_node`, or `several_nodes` (`nodes`), with the workshop's own headings.

    `formula`: by the workshop's, which divides by one GPU in both tables; else a table of nodes is over one node, too.
    """
    against = measured("throughput_scaling" if formula or not nodes else "node_scaling")
    base = "1N" if nodes else "1G"
    columns = {
        "Config": lambda row: row["config"] + {0: ": not measured", 1: " (single run)"}.get(row["runs_made"], ""),
        f"Train Loss (Epoch {epoch})": measured("loss"),
        f"Train Acc (Epoch {epoch}) (%)": measured("accuracy", 100),
        "Throughput (img/s)": measured("throughput"),
        **{f"GPU 0 {name} (MiB)": measured(f"{level}_bytes", 1 / 2**20)
           for name, level in (("Peak", "peak"), ("Avg", "mean"), ("Mode", "mode"))},
        f"Throughput Scaling vs {base}": against,
        f"Memory Avg Scaling vs {base}": measured("memory_scaling"),
    }  # fmt: skip
    if nodes and not formula:
        columns |= {"Throughput Scaling vs 1G": measured("throughput_scaling")}
    return text_table(rows.assign(runs_made=rows.repeats.fillna(0), repeats=None), columns)
