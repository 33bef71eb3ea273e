"""Cores: each rank on its own, as many as were requested, none more than the control group gives; and their clocks."""

from __future__ import annotations

import pytest

from hpc_utils.doctor import cpu
from hpc_utils.doctor.check import Verdict
from tests.support import write_files

from .conftest import seen

RANK = {
    "cpus": 4,
    "cores": 4,
    "requested": 4,
    "quota": None,
    "ranks": 2,
    "threads": 2,
    "pinned": [0, 1],
    "oversubscribed": False,
    "node_cores": None,
    "device": "cpu",
}


@pytest.mark.parametrize(
    ("facts", "verdict", "fix"),
    [
        ({}, Verdict.PASS, ""),
        ({"cpus": 1, "cores": 1}, Verdict.FAIL, "SLURM_CPUS_PER_TASK"),
        ({"oversubscribed": True, "ranks": 4}, Verdict.FAIL, "at most 2 ranks"),
        ({"quota": 1.5}, Verdict.FAIL, "--cpus"),
        ({"node_cores": "0.14", "oversubscribed": True}, Verdict.NOT_APPLICABLE, ""),  # nodes that share cores
        ({"pinned": [], "device": "cuda"}, Verdict.PASS, ""),
        ({"pinned": []}, Verdict.UNKNOWN, ""),
    ],
)
def test_the_cores_of_a_rank(facts, verdict, fix) -> None:
    found = cpu.judge_cores(seen(RANK | facts))
    assert found.verdict is verdict
    assert fix in found.fix


def test_two_ranks_on_one_core_fail_by_name() -> None:
    found = cpu.judge_cores(seen(RANK, RANK | {"pinned": [1, 2]}, per_node=2))
    assert (found.verdict, found.where) == (Verdict.FAIL, "node0 rank 0, node0 rank 1")
    assert cpu.judge_cores(seen(RANK, RANK | {"pinned": [2, 3]}, per_node=2)).verdict is Verdict.PASS
    assert cpu.judge_cores(seen(RANK, RANK)).verdict is Verdict.PASS, "the same number on another node"


def test_the_quota_of_a_control_group(tmp_path) -> None:
    """Version 2: the smallest of the innermost and all outer groups."""
    assert cpu.quota(tmp_path) is None
    top = "sys/fs/cgroup"
    files = {"proc/self/cgroup": "0::/job/step\n", f"{top}/job/step/cpu.max": "max 100000\n"}
    files |= {f"{top}/job/cpu.max": "150000 100000\n", f"{top}/cpu.max": "400000 100000\n"}
    assert cpu.quota(write_files(tmp_path, files)) == 1.5


CLOCKS = {"mhz": 3100, "hot": 7, "throttled": 3}


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"throttled": 9}, Verdict.FAIL),
        ({"hot": 8}, Verdict.FAIL),
        ({"mhz": None}, Verdict.UNKNOWN),
    ],
)
def test_clocks_under_load(after, verdict) -> None:
    assert cpu.judge_clocks(CLOCKS, CLOCKS | after).verdict is verdict


def test_clocks_as_the_kernel_shows_them(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cpu, "usable", lambda: [0, 1])
    assert cpu.clocks(tmp_path) == {"mhz": None, "hot": 0, "throttled": 0}
    files = {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.stat": "usage_usec 9\nnr_throttled 4\n"}
    for one, khz, heat in ((0, 2100000, 2), (1, 3300000, 1)):
        folder = f"sys/devices/system/cpu/cpu{one}"
        files |= {f"{folder}/cpufreq/scaling_cur_freq": f"{khz}\n"}
        files |= {f"{folder}/thermal_throttle/core_throttle_count": f"{heat}\n"}
    assert cpu.clocks(write_files(tmp_path, files)) == {"mhz": 3300, "hot": 3, "throttled": 4}
