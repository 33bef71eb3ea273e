"""Verdicts on traces of kinds that were once judged wrongly: made here, and the same kinds beside the project where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.analyze.profiles.judge import judge
from hpc_utils.analyze.profiles.readers import gather
from hpc_utils.analyze.profiles.verdict import Bound, Verdict

from .torch_traces import trained

_CASES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "cases"
GEMM = "ampere_sgemm_128x128_nt"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def case(pattern: str) -> Verdict:
    files = sorted(_CASES.glob(pattern))
    if not files:
        pytest.skip(f"no cases beside the project at {_CASES} (set HPC_DATA_MIRROR)")
    return judge(gather(files))


def actions(verdict: Verdict) -> str:
    return "\n".join(proposal.action for proposal in verdict.advice)


@pytest.mark.parametrize(
    "source",
    [
        {"Collective name": "all_to_allv"},
        {"inside": [("cpu_op", "record_param_comms", {"Collective name": "all_to_all"})]},
        {"inside": [("user_annotation", "nccl:all_to_all", {})]},
        {"inside": [("user_annotation", "moe.AllToAll4D", {})]},
    ],
    ids=["kernel", "operator", "range", "program"],
)
def test_an_all_to_all_of_sends_and_receives_waits_for_its_late_rank(tmp_path: Path, source: dict) -> None:
    files = [
        trained(
            tmp_path / f"rank{rank}.json",
            [(GEMM, 20, work), (SEND_RECV, 40 + work, 19_900 - work, source)],
            rank=rank,
            ranks=2,
        )
        for rank, work in enumerate((9_000, 18_000))
    ]
    found = judge(gather(files))
    assert found.bound == Bound.STRAGGLER
    assert "rank 1" in found.reason and "by 9 ms" in found.reason


def test_sends_and_receives_of_a_pipeline_stay_the_wires(tmp_path: Path) -> None:
    """Their waiting is the schedule's."""
    source = {"Collective name": "coalesced", "inside": [("user_annotation", "nccl:coalesced", {})]}
    files = [
        trained(
            tmp_path / f"rank{rank}.json", [(GEMM, 20, work), (SEND_RECV, 40 + work, 19_900 - work, source)], rank=rank, ranks=2
        )
        for rank, work in enumerate((9_000, 18_000))
    ]  # fmt: skip
    assert judge(gather(files)).bound == Bound.COMMUNICATION


def test_the_all_to_all_beside_the_project() -> None:
    found = case("all_to_all_rank*.json")
    assert found.bound == Bound.STRAGGLER and "rank 1" in found.reason
