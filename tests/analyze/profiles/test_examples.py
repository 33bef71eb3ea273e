"""Other people's profiles: each names its owner, and a missing one is reported and not fatal."""

from __future__ import annotations

from pathlib import Path

from hpc_utils.analyze.profiles import examples
from hpc_utils.analyze.profiles.verdict import Bound

from . import torch_traces


def test_those_that_are_here_are_read_and_the_others_named(tmp_path: Path, monkeypatch) -> None:
    mine = {"name": "mine", "files": ["torch/rank0.json"], "what": "a run"}
    lost = {"name": "lost", "files": ["torch/rank1.json"], "what": "a run"}
    monkeypatch.setattr(examples, "EXAMPLES", [mine, lost])
    (tmp_path / "torch").mkdir()
    torch_traces.write(tmp_path / "torch/rank0.json", torch_traces.trace([torch_traces.kernel("gemm", 1, 2)]))
    found = examples.profiles(tmp_path)
    assert found["mine"].what == "a run" and found["mine"].timelines[0].rank == 0 and not found["mine"].missing
    assert not found["lost"].timelines and found["lost"].verdict.bound == Bound.NOT_ENOUGH
    assert "torch/rank1.json" in found["lost"].missing
    named = {"profile:torch/rank0.json": tmp_path / "torch/rank0.json"}
    assert examples.evidence(tmp_path, found) == named
