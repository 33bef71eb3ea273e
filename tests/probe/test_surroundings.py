"""Traps in the environment."""

from __future__ import annotations

import site
import sys
from pathlib import Path

import pytest

from hpc_utils.probe import surroundings
from hpc_utils.probe.bench import Bench, Options
from hpc_utils.probe.check import Verdict

CLEAN = {
    "inherited": [],
    "threads": "1",
    "ranks": 2,
    "cores": 8,
    "binding": {},
    "imported": {"torch": "environment", "numpy": "elsewhere"},
    "several": {},
    "shm_bytes": 8 * 2**30,
    "memlock": 2**63,
}


def test_a_clean_environment_passes() -> None:
    assert surroundings.judge(CLEAN).verdict is Verdict.PASS
    assert surroundings.judge(CLEAN | {"shm_bytes": None, "memlock": None, "threads": None}).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("facts", "says", "fix"),
    [
        ({"inherited": ["RANK", "WORLD_SIZE"]}, "RANK WORLD_SIZE", "unset RANK WORLD_SIZE"),
        ({"threads": "8"}, "OMP_NUM_THREADS=8 for each of 2 ranks on 8 cores", "OMP_NUM_THREADS=4"),
        ({"binding": {"OMP_PROC_BIND": "close"}}, "works against the pinning", "unset OMP_PROC_BIND"),
        ({"imported": {"numpy": "user"}}, "numpy comes from the user's own", "PYTHONNOUSERSITE"),
        ({"several": {"torch": ["2.6.0", "2.13.0"]}}, "torch 2.6.0 hides 2.13.0", "PYTHONPATH"),
        ({"shm_bytes": 64 * 2**20}, "/dev/shm has 64 MiB", "--ipc=host"),
        ({"memlock": 64 * 2**10}, "locked memory", "MEMLOCK"),
    ],
)
def test_each_trap_fails_with_its_fix(facts, says, fix) -> None:
    found = surroundings.judge(CLEAN | facts)
    assert found.verdict is Verdict.FAIL
    assert says in found.measured
    assert fix in found.fix


def test_all_traps_are_told_at_once() -> None:
    found = surroundings.judge(CLEAN | {"threads": "64", "inherited": ["RANK"]})
    assert "OMP_NUM_THREADS" in found.measured
    assert "RANK" in found.measured


def test_binding_that_is_switched_off_is_no_trap() -> None:
    assert surroundings.judge(CLEAN | {"binding": {"OMP_PROC_BIND": "false"}}).verdict is Verdict.PASS


def test_what_says_that_a_process_is_a_rank() -> None:
    environment = {"RANK": "0", "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "h", "PRANK": "1", "RANKS_PER_NODE": "2"}
    assert surroundings.leftovers(environment) == ["MASTER_ADDR", "RANK", "TORCHELASTIC_RUN_ID"]


def test_a_package_hidden_by_another_version_is_found(tmp_path: Path) -> None:
    for number, version in enumerate(("1.0", "2.0")):
        metadata = tmp_path / str(number) / f"numpy-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: numpy\nVersion: {version}\n")
    first, second = (str(tmp_path / number) for number in "01")
    assert surroundings._several([first, second, first]) == {"numpy": ["1.0", "2.0"]}
    assert surroundings._several([first, first]) == {}


def test_whose_a_module_is() -> None:
    assert surroundings._owner(Path(site.getusersitepackages()) / "torch/__init__.py") == "user"
    assert surroundings._owner(Path(sys.prefix) / "lib/torch/__init__.py") == "environment"
    assert surroundings._owner(Path("/opt/apps/torch/__init__.py")) == "elsewhere"


def test_this_process_can_be_looked_at(monkeypatch) -> None:
    monkeypatch.setenv("KMP_AFFINITY", "compact")
    facts = surroundings.look(Bench(Options(inherited=("RANK",)), exchange=None))
    assert facts["inherited"] == ["RANK"]
    assert facts["binding"] == {"KMP_AFFINITY": "compact"}
    assert surroundings.judge(facts).verdict is Verdict.FAIL
