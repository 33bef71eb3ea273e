"""Chapter 12, executed: a workload and a bare loop are measured, and come to one figure and to verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import records
from hpc_utils.publish import exports

from .chapters import HANG


@pytest.mark.soak  # tests/test_readme.py runs the same loop, and one run of the same workload
@pytest.mark.timeout(HANG + 60)
def test_a_workload_and_a_bare_loop_come_to_one_figure(executed, tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    _, figures = executed(tmp_path / "begun", "12_your_model", repeats=1)
    results = tmp_path / "results"
    found, runs = exports.read_exports(results), records.load(results).runs
    assert {"my-mlp-efficiency", "your-model-efficiency"} <= figures
    assert set(zip(runs.workload, runs.parallel, runs.world_size, strict=True)) >= {
        ("my_study:mlp", "none", 1), ("my_study:mlp", "ddp", 2), ("my_loop.py", "none", 1), ("my_loop.py", "ddp", 2),
    }  # fmt: skip
    judged = found.frame("your-model-targets").groupby("workload").kind.agg(set)
    assert judged.to_dict() == {"my_study:mlp": {"strong", "weak"}, "my_loop.py": {"strong", "weak"}}
    assert all((results / f"your-model/{name}.toml").exists() for name in ("my-mlp", "my-loop"))
