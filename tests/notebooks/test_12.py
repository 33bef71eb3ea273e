"""Chapter 12, executed: a workload and a bare loop are measured, and come to one figure and to verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import records
from hpc_utils.publish import exports
from tests.test_readme import PYTHON, brief

from .test_03 import HANG, executed, hpc  # noqa: F401


@pytest.mark.soak  # tests/test_readme.py measures, judges and draws the same workload and loop
@pytest.mark.timeout(HANG + 60)
def test_a_workload_and_a_bare_loop_come_to_one_figure(executed, warm_process: str, tmp_path: Path) -> None:  # noqa: F811
    results = tmp_path / "results"
    folder = tmp_path / "begun/your-model"  # the reader has drafted the study, and edited it
    folder.mkdir(parents=True)
    (folder / "my_study.py").write_text(PYTHON[0])
    hpc(folder, results, warm_process, "study", "new", "my-mlp.toml", "--workload", "my_study:mlp")
    study = folder / "my-mlp.toml"
    study.write_text(brief(study.read_text()))
    _, figures = executed(folder.parent, "12_your_model", repeats=1)
    found, runs = exports.read(results), records.load(results).runs
    assert {"my-mlp-efficiency", "your-model-efficiency"} <= figures
    assert set(zip(runs.workload, runs.parallel, runs.world_size, strict=True)) >= {
        ("my_study:mlp", "none", 1), ("my_study:mlp", "ddp", 2), ("my-loop", "none", 1), ("my-loop", "ddp", 2),
    }  # fmt: skip
    assert not runs.oversubscribed.any() and set(runs.threads_per_rank) == {1}
    judged = found.frame("your-model-targets").groupby("workload").kind.agg(set)
    assert judged.to_dict() == {"my_study:mlp": {"strong", "weak"}, "my-loop": {"strong"}}
    assert {path.name for path in (results / "your-model").glob("*.*")} == {
        "my_study.py",
        "my_loop.py",
        "my-mlp.toml",
    }
