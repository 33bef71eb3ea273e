"""Cores: each rank on its own, as many as were asked for, none more than the control group allows."""

from __future__ import annotations

import pytest

from hpc_utils.probe import binding
from hpc_utils.probe.check import Verdict
from hpc_utils.provenance.cgroup import files

from .conftest import seen, tree

RANK = {
    "allowed": [0, 1, 2, 3],
    "cores": 4,
    "asked": 4,
    "quota": None,
    "ranks": 2,
    "threads": 2,
    "pinned": [],
    "oversubscribed": False,
    "node_cores": None,
    "device": "cpu",
}
PAIR = [RANK | {"pinned": [0, 1]}, RANK | {"pinned": [2, 3]}]


def test_ranks_on_cores_of_their_own_pass() -> None:
    assert binding.judge(seen(*PAIR, per_node=2)).verdict is Verdict.PASS


def test_two_ranks_on_one_core_fail_by_name() -> None:
    found = binding.judge(seen(PAIR[0], RANK | {"pinned": [1, 2]}, per_node=2))
    assert found.verdict is Verdict.FAIL
    assert "share CPU 1" in found.measured
    assert found.where == "node0 rank 0, node0 rank 1"
    assert binding.judge(seen(PAIR[0], PAIR[0])).verdict is Verdict.PASS, "the same number on another node"


@pytest.mark.parametrize(
    ("facts", "says", "fix"),
    [
        ({"allowed": [0], "cores": 1}, "1 CPU allowed of 4 asked for", "SLURM_CPUS_PER_TASK"),
        ({"oversubscribed": True, "ranks": 4}, "4 ranks x 2 threads want 8 cores, allowed are 4", "at most 2 ranks"),
        ({"quota": 1.5}, "control group allows 1.5 CPUs", "--cpus"),
    ],
)
def test_too_few_cores_fail(facts, says, fix) -> None:
    found = binding.judge(seen({**PAIR[0], **facts}))
    assert found.verdict is Verdict.FAIL
    assert says in found.measured
    assert fix in found.fix


def test_of_nodes_that_share_cores_nothing_is_judged() -> None:
    found = binding.judge(seen(RANK | {"node_cores": "0.14", "oversubscribed": True}))
    assert found.verdict is Verdict.NOT_APPLICABLE and "0.14 of one" in found.measured


def test_a_gpus_host_threads_may_roam_but_a_cpu_rank_that_cannot_be_pinned_is_unknown() -> None:
    assert binding.judge(seen(RANK | {"device": "cuda"})).verdict is Verdict.PASS
    assert binding.judge(seen(RANK)).verdict is Verdict.UNKNOWN


def test_the_quota_of_the_innermost_and_all_outer_groups(tmp_path) -> None:
    machine = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/job/step\n",
            "sys/fs/cgroup/job/step/cpu.max": "max 100000\n",
            "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/cpu.max": "400000 100000\n",
        },
    )
    assert binding.quota(machine) == 1.5
    assert [file.parent.name for file in files("cpu.max", machine)] == ["step", "job", "cgroup"]


def test_the_quota_of_the_older_kind_of_group(tmp_path) -> None:
    machine = tree(
        tmp_path,
        {
            "proc/self/cgroup": "9:name=systemd:/\n2:cpu,cpuacct:/docker/1f\n1:memory:/\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/docker/1f/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        },
    )
    assert binding.quota(machine) == 0.5


def test_no_limit_is_none(tmp_path) -> None:
    assert binding.quota(tmp_path) is None
