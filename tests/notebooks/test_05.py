"""Chapter 05, executed: real runs as a ladder come to gains and verdicts; what is not there, it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.publish import cells, exports

from .chapters import MADE

CHAPTER = "05_optimization"
LAPTOP = paths.root() / "results/reference/epyc-2core"


@pytest.fixture
def as_ladder(tmp_path: Path) -> Path:
    """The committed laptop study's runs on one rank, as a ladder of one step (bf16), and with and without DDP."""
    results = tmp_path / "kept"
    shutil.copytree(LAPTOP, results, ignore=shutil.ignore_patterns(*MADE))
    index = json.loads((LAPTOP / "studies/laptop.json").read_text())
    alone = [run for run in index["runs"] if run["ranks"] == 1 and run["series"] in ("baseline", "strong")]
    bf16 = {"name": "bf16", "about": "half the bits", "parameters": {"precision": "bf16"}}
    graphs = {"name": "graphs", "about": "replayed", "parameters": {"compile": "reduce-overhead"}}
    steps = [
        bf16 | {"alone": "alone-bf16", "upto": "upto-bf16", "why": ""},
        graphs | {"alone": "alone-graphs", "upto": None, "why": "no CUDA graphs on a CPU"},
    ]
    runs = [run | {"series": "combined"} for run in alone]
    for run in alone:
        if run["series"] == "baseline":
            bf = run["parameters"]["precision"] == "bf16"
            runs += [run | {"series": series} for series in (("alone-bf16", "upto-bf16") if bf else ("plain",))]
    (results / "studies/laptop.json").unlink()
    made = index | {"name": "mine", "ladder": {"plain": "plain", "steps": steps}, "runs": runs}
    (results / "studies/mine.json").write_text(json.dumps(made))
    return results


def test_without_an_ablation_the_missing_parts_are_listed(executed):
    text, figures = executed(LAPTOP, CHAPTER, study="laptop", gpu_set="no-such-gpu")
    for missing in ("hpc study run optimization-cpu", "make bench", "cifar10-gpu"):
        assert missing in text
    assert not figures


def test_an_ablation_is_described(executed, as_ladder, tmp_path):
    text, figures = executed(as_ladder, CHAPTER, gpu_set="no-such-gpu")
    assert figures == {f"speed-mine-{kind}" for kind in ("ladder", "profile", "learning")}
    assert "half the bits" in text and "no CUDA graphs on a CPU" in text
    assert "throughput over the plain loop's" in text or "No configuration was measured to be faster" in text
    found = exports.read_exports(tmp_path / "results")
    assert figures == set(found.figures)
    assert {"speed-mine-steps", "speed-best", "speed-learnt", "speed-studies"} <= set(found.tables)
    for cited, unit in (
        ("speed-speeds[study=mine, label=plain]", "samples/s"),
        ("speed-learnt.verdict[study=mine, step=bf16, measure=accuracy]", "text"),
        ("speed-phases.data_seconds[study=mine, step=plain]", "s"),
        ("speed-process-group[study=mine, series=combined, precision=bf16]", "ratio"),
    ):
        assert cells.cell(found, cells.parse(cited)).unit == unit
    gain = cells.cell(found, cells.parse("speed-gains.marginal[study=mine, step=bf16]"))
    assert gain.has_interval and gain.repeats == 3 and len(gain.runs) == 6
