"""Nodes with different software, and settings that change measurements."""

from __future__ import annotations

import site
import sys
from types import SimpleNamespace

import pytest

from hpc_utils.doctor import environment
from hpc_utils.doctor.check import Verdict

from .conftest import alone, seen

SOFTWARE = {
    "digest": "a1",
    "torch": "2.13.0",
    "CUDA": "12.6",
    "NCCL": "2.28.9",
    "Python": "3.11.7",
    "MPI": "",
    "UCX": "",
}


def test_this_nodes_software_is_known() -> None:
    facts = environment.measure_software(alone())
    assert facts.keys() == SOFTWARE.keys() and facts["digest"] and facts["torch"] and facts["Python"]


def test_the_version_of_a_library_is_what_its_tool_prints_first(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = {
        "mpiexec": "HYDRA build details:\n    Version:         5.0.2\n    Release 1.1",
        "ucx_info": "# Library version: 1.15.0\n# Library path: /usr/lib",
    }
    monkeypatch.setattr(environment, "run_tool", lambda tool, *_: printed.get(tool))
    facts = environment.measure_software(alone())
    assert (facts["MPI"], facts["UCX"]) == ("HYDRA build details: Version: 5.0.2", "Library version: 1.15.0")
    printed.clear()  # neither is installed
    assert environment.measure_software(alone())["UCX"] == ""


def test_a_node_with_other_software_is_named() -> None:
    assert environment.judge_software(seen(SOFTWARE, SOFTWARE)).verdict is Verdict.PASS
    judged = environment.judge_software(seen(SOFTWARE, SOFTWARE, SOFTWARE | {"NCCL": "other"}))
    assert (judged.verdict, judged.where) == (Verdict.FAIL, "node2 rank 2")
    assert "NCCL" in judged.measured and "other" in judged.measured


CLEAN = {"inherited": [], "threads": "1", "ranks": 2, "cores": 8}
CLEAN |= {"binding": {"OMP_PROC_BIND": "false"}, "user_site": [], "shm_bytes": 8 * 2**30}
TRAPS = [
    ({"inherited": ["RANK", "WORLD_SIZE"]}, "unset RANK WORLD_SIZE"),
    ({"threads": "8"}, "OMP_NUM_THREADS=4"),
    ({"binding": {"OMP_PROC_BIND": "close"}}, "unset OMP_PROC_BIND"),
    ({"user_site": ["numpy"]}, "PYTHONNOUSERSITE"),
    ({"shm_bytes": 64 * 2**20}, "--ipc=host"),
]


@pytest.mark.parametrize(("facts", "fix"), TRAPS)
def test_each_trap_fails_with_its_fix(facts, fix) -> None:
    found = environment.judge_traps(CLEAN | facts)
    assert found.verdict is Verdict.FAIL
    assert fix in found.fix


def test_all_traps_are_one_row_and_none_passes() -> None:
    found = environment.judge_traps(CLEAN | {name: value for facts, _ in TRAPS for name, value in facts.items()})
    assert all(fix in found.fix for _, fix in TRAPS)
    for facts in ({}, {"shm_bytes": None, "threads": ""}):
        assert environment.judge_traps(CLEAN | facts).verdict is Verdict.PASS


def test_traps_of_this_process(monkeypatch) -> None:
    monkeypatch.setenv("KMP_AFFINITY", "compact")
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(__file__=f"{site.getusersitepackages()}/pandas.py"))
    facts = environment.measure_traps(alone(inherited="RANK"))
    assert (facts["inherited"], facts["binding"]) == (["RANK"], {"KMP_AFFINITY": "compact"})
    assert facts["user_site"] == ["pandas"]
