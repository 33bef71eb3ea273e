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
from hpc_utils.provenance.gpu import Gpu, gpus, links
from tests.support import Nvml

Tool = Callable[[str, str], None]

A100S = [Gpu(index, "NVIDIA A100-SXM4-40GB", f"GPU-{index}", 40 << 30, "535.129.03", 4, 16) for index in (0, 1)]
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
    "driver": {"name": "amdgpu", "version": "6.8.5"},
    "vram": {"type": "HBM2E", "size": {"value": 65520, "unit": "MB"}},
}


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


def test_the_gpus_that_nvml_lists() -> None:
    common = {"nvmlDeviceGetCount": 1, "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB", "nvmlDeviceGetUUID": "GPU-0"}
    more = {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=40 << 30), "nvmlSystemGetDriverVersion": "535.129.03"}
    more |= {"nvmlDeviceGetMaxPcieLinkGeneration": 4, "nvmlDeviceGetMaxPcieLinkWidth": 16}
    handle = {"nvmlDeviceGetHandleByIndex": "handle"}
    assert nvml.listed(Nvml(**common, **more, **handle)) == [vars(A100S[0])]
    (superchip,) = nvml.listed(Nvml(**common, **handle))
    assert superchip["name"] and superchip["memory_bytes"] is superchip["pcie_width"] is None


def test_two_connected_gpus(tool: Tool, driver: Callable[[str], None]) -> None:
    driver(say(json.dumps([vars(one) for one in A100S])))
    tool("nvidia-smi", say(TOPOLOGY))
    found = hardware()
    assert found.faults == [] and found.gpus == A100S
    assert "NV12" in found.nvlink and "Legend" not in found.nvlink and "\x1b" not in found.nvlink
    assert len(found.nvlink.splitlines()) == 4


def test_a_driver_that_hangs_is_a_fault(driver: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_PROBE_TIMEOUT", "0.2")
    driver("sleep 60")
    start = time.monotonic()
    found = hardware()
    assert time.monotonic() - start < 40
    assert found.gpus == [] and found.faults == ["NVML did not answer within 0.2 s"]
    assert found.cpu.model


@pytest.mark.parametrize("answer", [[MI210], {"gpu_data": [MI210]}])
def test_amd_smi(tool: Tool, answer: object) -> None:
    tool("amd-smi", say(json.dumps(answer)))
    (gpu,) = gpus([])
    assert astuple(gpu) == (0, "AMD Instinct MI210", None, 65520 * 2**20, "6.8.5", None, None)


@pytest.mark.parametrize("text", ["WARNING: No AMD GPUs", "[]", "[1, {}]", '{"gpu_data": null}'])
def test_odd_amd_answers_are_no_gpus(tool: Tool, text: str) -> None:
    tool("amd-smi", say(text))
    assert gpus([]) == [] and links([]) is None
