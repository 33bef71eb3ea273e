"""Visible GPUs against those asked for and the ranks that use them."""

from __future__ import annotations

import pytest

from hpc_utils.probe import gpus
from hpc_utils.probe.check import Verdict

from .conftest import seen

FOUR = {
    "wanted": "auto",
    "asked": 4,
    "on_machine": 4,
    "visible": 4,
    "ranks": 4,
    "device": None,
    "masks": {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
}


def node(**different: object) -> list:
    """Four ranks of one node, a device each."""
    return seen(*({**FOUR, "device": f"uuid-{rank}"} | different for rank in range(4)), per_node=4)


def test_a_gpu_for_each_rank_passes() -> None:
    assert gpus.judge(node()).verdict is Verdict.PASS
    assert gpus.judge(node(asked=None)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("facts", "says", "fix"),
    [
        ({"visible": 1}, "4 asked for, 1 visible", "--gpus-per-task"),
        ({"visible": 0, "on_machine": 0}, "4 asked for, 0 visible", "CUDA_VISIBLE_DEVICES"),
        ({"asked": None, "visible": 0}, "4 on the machine, none visible", "unset CUDA_VISIBLE_DEVICES"),
        ({"ranks": 8}, "8 ranks share 4 GPUs", "start 4 ranks"),
        ({"ranks": 2}, "2 ranks use 2 of 4", "--nproc-per-node=4"),
        ({"device": "uuid-0"}, "4 ranks use one GPU", "--gpu-bind"),
    ],
)
def test_what_was_asked_for_and_is_not_there_or_not_used_fails(facts, says, fix) -> None:
    found = gpus.judge(node(**facts))
    assert found.verdict is Verdict.FAIL
    assert says in found.measured
    assert fix in found.fix


def test_a_rank_that_shares_a_device_is_named() -> None:
    ranks = node()
    ranks[3].facts["device"] = "uuid-1"
    assert gpus.judge(ranks).where == "node0 rank 1, node0 rank 3"


def test_the_same_device_number_on_two_nodes_is_two_devices() -> None:
    one = {**FOUR, "asked": 1, "visible": 1, "ranks": 1, "device": "uuid-0"}
    assert gpus.judge(seen(one, one)).verdict is Verdict.PASS


def test_a_laptop_may_leave_gpus_unused() -> None:
    assert gpus.judge(seen({**FOUR, "asked": None, "ranks": 1, "device": "uuid-0"})).verdict is Verdict.PASS


def test_without_gpus_or_use_for_them_it_does_not_apply() -> None:
    none = {**FOUR, "asked": None, "on_machine": 0, "visible": 0, "masks": {}}
    assert gpus.judge(seen(none)).verdict is Verdict.NOT_APPLICABLE
    assert gpus.judge(seen({**FOUR, "wanted": "cpu", "visible": 0})).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({"SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "0,1,2,3"}, 2),
        ({"SLURM_STEP_GPUS": "0,1"}, 2),
        ({"SLURM_JOB_GPUS": "3"}, 1),
        ({"SLURM_JOB_ID": "7"}, None),
        ({}, None),
    ],
)
def test_gpus_that_slurm_gave(environment, number) -> None:
    assert gpus.asked(environment) == number
