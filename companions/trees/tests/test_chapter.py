"""Chapter 10, executed: the committed study of tree models shows that the cores work, and what a GPU must reach."""

from __future__ import annotations

from pathlib import Path

from hpc_utils import paths
from hpc_utils.publish import exports


def test_the_committed_study_proves_that_all_cores_work(executed, tmp_path: Path) -> None:
    text, figures = executed(paths.root() / "results/reference/trees", "10_tree_models")
    assert figures == {"trees-scaling", "trees-at-work", "trees-learning"}
    assert "`hpc submit trees-gpu --cluster SITE" in text, "no GPU was measured"
    found = exports.read_exports(tmp_path / "results")
    rows = found.frame("trees-threads").set_index(["library", "threads"])
    assert rows.cores.map(str).tolist() == ["0", "0 1"] * 2 and (rows.repeats == 5).all()
    both = rows.xs(2, level="threads")
    assert (both.busy_cores > 1.5).all() and both.speedup.between(1.2, 2.1).all() and (rows.outside < 0.1).all()
    assert (rows.test_auc_low < rows.test_auc).all() and rows.test_auc.between(0.7, 0.95).all()
    work = found.frame("trees-at-work")
    assert set(zip(work.library, work.threads, strict=True)) == set(rows.index)
    even = found.frame("trees-break-even")
    assert (even.better == "not measured").all() and (
        even.may_take * even.price_ratio - even.seconds
    ).abs().max() < 1e-6
