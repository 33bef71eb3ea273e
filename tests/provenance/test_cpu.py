from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_utils.provenance.cpu import core_groups, cpu, emulates_bf16, usable
from tests.support import write_files

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8462Y+
flags\t\t: fpu sse2 avx f16c avx2 fma avx512f avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8

processor\t: 1
model name\t: not read
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /sys")


def dual_socket(root: Path) -> Path:
    """Two sockets of two cores of two threads, numbered as Linux does: threads 0-3, their siblings 4-7.

    Sockets alternate (0 and 2 on the first), so that neighbours by number are not neighbours by place.
    """
    files = {"sys/devices/system/cpu/online": "0-7\n", "proc/cpuinfo": XEON}
    for one in range(8):
        core = one % 4
        folder = f"sys/devices/system/cpu/cpu{one}/topology"
        files[f"{folder}/thread_siblings_list"] = f"{core},{core + 4}\n"
        files[f"{folder}/physical_package_id"] = f"{core % 2}\n"
    files["sys/devices/system/node/node0/cpulist"] = "0,2,4,6\n"
    files["sys/devices/system/node/node1/cpulist"] = "1,3,5,7\n"
    return write_files(root, files)


def test_cores_of_one_socket_are_neighbours(tmp_path: Path) -> None:
    machine = dual_socket(tmp_path)
    assert core_groups(machine, range(8)) == [[0, 4], [2, 6], [1, 5], [3, 7]]
    assert core_groups(machine, [7, 5, 1, 2]) == [[2], [1, 5], [7]], "only usable threads are given out"
    assert core_groups(tmp_path / "without topology", range(3)) == [[0], [1], [2]]


@linux
def test_caches_governor_and_virtual_machines_are_recorded(tmp_path: Path) -> None:
    machine = dual_socket(tmp_path)
    bare = cpu(machine)
    assert (bare.caches, bare.governor, bare.virtual) == (None, None, False)
    files = {"cpufreq/scaling_governor": "powersave\n"}
    for index, cache in enumerate(("1 Data 48K", "1 Instruction 32K", "3 Unified 60M")):
        names = [f"cache/index{index}/{key}" for key in ("level", "type", "size")]
        files |= dict(zip(names, cache.split(), strict=True))
    write_files(machine / "sys/devices/system/cpu/cpu0", files)
    write_files(machine, {"proc/cpuinfo": XEON.replace("fpu ", "fpu hypervisor ")})
    found = cpu(machine)
    assert (found.caches, found.governor, found.virtual) == ("L1d 48K, L3 60M", "powersave", True)


def test_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = core_groups()
    assert sorted(one for group in groups for one in group) == usable()
    if hasattr(os, "sched_setaffinity"):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {max(before)})
        try:
            assert core_groups() == [[max(before)]]
            assert cpu().usable == 1
        finally:
            os.sched_setaffinity(0, before)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert usable() == [0, 1]


@linux
def test_a_dual_socket_node(tmp_path: Path) -> None:
    found = cpu(dual_socket(tmp_path))
    assert found.model == "Intel(R) Xeon(R) Platinum 8462Y+"
    assert (found.sockets, found.cores, found.logical, found.threads_per_core, found.numa_nodes) == (2, 4, 8, 2, 2)
    assert {"avx2", "avx512f", "avx512_bf16", "amx_bf16"} <= set(found.flags) and "sse2" not in found.flags


@linux
def test_an_arm_node_is_named_by_lscpu(tmp_path: Path, tool: Callable[[str, str], None]) -> None:
    write_files(tmp_path, {"proc/cpuinfo": "processor\t: 0\nFeatures\t: fp asimd sve bf16 i8mm\nCPU part\t: 0xd4f\n"})
    (tmp_path / "bin/lscpu").unlink(missing_ok=True)
    tool("lscpu", "printf 'Architecture: aarch64\\nModel name:   Neoverse-V2\\n'")
    found = cpu(tmp_path)
    assert found.model == "Neoverse-V2"
    assert found.flags == ["asimd", "bf16", "i8mm", "sve"]
    assert found.sockets is None


@linux
def test_processors_that_emulate_bf16(tmp_path: Path) -> None:
    """A laptop with AVX2 does; a server with AVX-512 or AMX does not; of a machine that says nothing it is not claimed."""
    laptop = {"proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse2 avx f16c avx2 fma\n"}
    assert emulates_bf16(write_files(tmp_path / "laptop", laptop))
    assert not emulates_bf16(dual_socket(tmp_path / "server"))
    assert not emulates_bf16(tmp_path / "nothing")
