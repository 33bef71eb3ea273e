"""NVML and the vendors' tools answer as they are documented: this needs no GPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import astuple
from types import SimpleNamespace

import pytest

from hpc_utils.provenance import hardware, nvml
from hpc_utils.provenance.gpu import Gpu, gpus, links, with_package
from hpc_utils.provenance.tools import run_tool

Tool = Callable[[str, str], None]

A100S = [
    {
        "index": index,
        "name": "NVIDIA A100-SXM4-40GB",
        "uuid": f"GPU-{index}",
        "memory_bytes": 40 << 30,
        "driver": "535.129.03",
        "pcie_generation": 4,
        "pcie_width": 16,
    }
    for index in (0, 1)
]
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tPXB\t48-63,176-191\t3\t\tN/A\n"
    "GPU1\tNV12\t X \tPXB\t48-63,176-191\t3\t\tN/A\n"
    "NIC0\tPXB\tPXB\t X \t\t\t\t\n\n"
    "Legend:\n\n  X    = Self\n"
)
MI210 = {
    "gpu": 0,
    "asic": {"market_name": "AMD Instinct MI210", "asic_serial": "0xSECRETSERIAL", "num_compute_units": 104},
    "bus": {"max_pcie_width": 16, "max_pcie_speed": {"value": 16}, "pcie_interface_version": "Gen 4"},
    "driver": {"name": "amdgpu", "version": "6.8.5"},
    "vram": {"type": "HBM2E", "size": {"value": 65520, "unit": "MB"}},
}


class Nvml:
    """Two GPUs: an A100, and a superchip's that reports neither memory nor PCIe."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return ("NVIDIA A100-SXM4-40GB", "NVIDIA GB10")[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "535.129.03"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=self._of_the_first(handle, 40 << 30))

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return self._of_the_first(handle, 4)

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return self._of_the_first(handle, 16)

    def _of_the_first(self, handle: int, value: int) -> int:
        if handle:
            raise self.NVMLError("Not Supported")
        return value


def say(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


@pytest.fixture
def driver(tool: Tool, tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A machine with NVIDIA's driver, whose NVML answers as the script says."""

    def answer(script: str) -> None:
        tool("python-with-nvml", script)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python-with-nvml"))
        monkeypatch.setattr(nvml, "installed", lambda: True)

    return answer


def test_none(tool: Tool) -> None:
    faults: list[str] = []
    assert gpus(faults) == [] and faults == []
    assert links(faults) is None


def test_the_gpus_that_nvml_lists() -> None:
    first, second = (Gpu(**one) for one in nvml.listed(Nvml()))
    assert astuple(first) == (0, "NVIDIA A100-SXM4-40GB", "GPU-0", 40 << 30, "535.129.03", 4, 16)
    assert (second.name, second.index, second.driver) == ("NVIDIA GB10", 1, "535.129.03")
    assert second.memory_bytes is second.pcie_width is second.pcie_generation is None


def test_the_nvml_process_reports_why_it_fails() -> None:
    if nvml.installed():
        pytest.skip("there is a driver")
    faults: list[str] = []
    command = (sys.executable, "-m", "hpc_utils.provenance.nvml")
    assert run_tool(*command, environment=with_package(), faults=faults, name="NVML") is None
    assert len(faults) == 1 and faults[0].startswith("NVML failed: ")


def test_two_connected_gpus(tool: Tool, driver: Callable[[str], None]) -> None:
    driver(say(json.dumps(A100S)))
    tool("nvidia-smi", say(TOPOLOGY))
    found = hardware()
    assert found.faults == []
    assert found.gpus == [Gpu(**one) for one in A100S]
    assert "NV12" in found.nvlink and "Legend" not in found.nvlink and "\x1b" not in found.nvlink
    assert len(found.nvlink.splitlines()) == 4


def test_a_driver_that_hangs_or_fails_is_a_fault(
    driver: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPC_PROBE_TIMEOUT", "0.2")
    driver("sleep 60")
    start = time.monotonic()
    found = hardware()
    assert time.monotonic() - start < 40
    assert found.gpus == [] and found.faults == ["NVML did not answer within 0.2 s"]
    assert found.cpu.model
    driver("echo 'Traceback'; exit 1")
    faults: list[str] = []
    assert gpus(faults) == [] and faults == ["NVML failed: Traceback"]


@pytest.mark.parametrize("answer", [[MI210], {"gpu_data": [MI210]}])
def test_amd_smi(tool: Tool, answer: object) -> None:
    tool("amd-smi", say(json.dumps(answer)))
    (gpu,) = gpus([])
    assert astuple(gpu) == (0, "AMD Instinct MI210", None, 65520 * 2**20, "6.8.5", 4, 16)


@pytest.mark.parametrize("text", ["WARNING: No AMD GPUs", "[]", "[1, {}]", '{"gpu_data": null}', '"x"'])
def test_odd_amd_answers_are_no_gpus(tool: Tool, text: str) -> None:
    tool("amd-smi", say(text))
    assert gpus([]) == []
