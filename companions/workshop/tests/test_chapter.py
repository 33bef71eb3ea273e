"""Chapter 08, executed: the committed rehearsal of the workshop fills both of its tables."""

from __future__ import annotations

from pathlib import Path

from hpc_utils import paths
from hpc_utils.publish import exports

REHEARSED = paths.root() / "results/reference/workshop"


def test_both_tables_are_filled_by_both_definitions(executed, tmp_path: Path) -> None:
    text, figures = executed(REHEARSED, "08_workshop")
    assert figures == {"workshop-over-time", "workshop-throughput", "workshop-same-devices", "workshop-confounds"}
    assert "LR: 0.001000 | Loss (train, val):" in text and "[gpu_memory_log - GPU 0] Peak =" in text
    results = tmp_path / "results"
    found = exports.read_exports(results)
    for name, worlds, scaling in (("one-node", [1, 2, 4, 8], 1), ("several-nodes", [2, 4, 8, 16], 2)):
        rows = found.frame(f"workshop-{name}")
        assert rows.world_size.tolist() == worlds and (rows.repeats == 3).all()
        assert rows[["loss", "accuracy", "throughput", "peak_bytes", "memory_scaling"]].notna().all(axis=None)
        assert rows.throughput_scaling.is_monotonic_increasing and rows.throughput_scaling.iloc[0] < scaling + 0.01
    for table in ("table-1", "table-1-ours", "table-2", "table-2-ours"):
        assert "not measured" not in (results / f"tables/workshop-{table}.md").read_text()
        assert "linewidth" in (results / f"tables/workshop-{table}.tex").read_text(), "it fits the page"
    assert found.frame("workshop-expected").verdict.isin(["as expected", "differs"]).all()
    same = found.frame("workshop-same-devices")
    assert same.config.tolist() == ["4 devices", "2 nodes x 2 devices", "8 devices", "4 nodes x 2 devices"]
    both = found.frame("workshop-confounds")
    assert both.groupby("series").size().to_dict() == {"protocol": 7, "adjusted": 7}
    assert not found.frame("workshop-accounting").empty
