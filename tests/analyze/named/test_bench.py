"""What `make bench` left, by name, in base units."""

from __future__ import annotations

import pandas as pd
import pytest

from hpc_utils import paths
from hpc_utils.analyze.named import bench

KEPT = sorted((paths.root() / "results/reference").glob("*/bench/*.csv"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_row_has_a_name_of_its_own(path):
    table = pd.read_csv(path)
    values = bench.table(table, path.name)
    assert len({value.name for value in values}) == len(values)
    assert len(values) == sum(table[name].notna().sum() for name in ("median", "ratio"))
    assert all(value.files == (f"bench/{path.name}",) and not value.has_interval for value in values)


def test_units_are_base_units():
    row = {"benchmark": "overhead", "case": "DDP, cnn", "variant": "no process group", "metric": "step p50", "unit": "ms",
           "median": 9.5, "min": 9.0, "max": 10.0, "repeats": 3, "reference": "other", "ratio": 1.1, "ratio_min": 1.0,
           "ratio_max": 1.2}  # fmt: skip
    found = {value.name: value for value in bench.table(pd.DataFrame([row]), "overhead.csv")}
    value = found["bench.overhead.ddp-cnn.no-process-group"]
    assert value.value == pytest.approx(9.5e-3) and value.unit == "s" and value.repeats == 3
    assert found["bench.overhead.ddp-cnn.no-process-group.ratio"].value == 1.1
