"""The tools' answers are modelled on their published output: this needs no GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from hpc_utils.provenance import hardware
from hpc_utils.provenance.gpu import gpus, links

Tool = Callable[[str, str], None]

A100S = """\
0, NVIDIA A100-SXM4-40GB, GPU-5a4d0b63-4a5c-1a3e-9f0e-000000000000, 40960, 535.129.03, 4, 16
1, NVIDIA A100-SXM4-40GB, GPU-5a4d0b63-4a5c-1a3e-9f0e-000000000001, 40960, 535.129.03, 4, 16
"""
SUPERCHIP = "0, NVIDIA GB10, GPU-5a4d0b63-4a5c-1a3e-9f0e-000000000002, [N/A], 580.95.05, [N/A], [N/A]\n"
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
ROCM = {
    "card10": {"Card Series": "AMD Instinct MI250X", "VRAM Total Memory (B)": "68702699520"},
    "card1": {"Card series": "AMD Instinct MI250X", "VRAM Total Memory (B)": "68702699520", "Unique ID": "0x9"},
    "system": {"Driver version": "6.7.0"},
}


def say(text: str) -> str:
    return f"cat <<'END'\n{text}\nEND"


def test_none(tool: Tool) -> None:
    faults: list[str] = []
    assert gpus(faults) == [] and faults == []
    assert links(faults) is None


def test_two_connected_gpus(tool: Tool) -> None:
    tool("nvidia-smi", f'if [ "$1" = topo ]; then\n{say(TOPOLOGY)}\nelse\n{say(A100S)}\nfi')
    found = hardware()
    assert found["faults"] == []
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    assert found["gpus"][0] == {
        "index": 0,
        "name": "NVIDIA A100-SXM4-40GB",
        "uuid": "GPU-5a4d0b63-4a5c-1a3e-9f0e-000000000000",
        "memory_bytes": 40960 * 2**20,
        "driver": "535.129.03",
        "pcie_generation": 4,
        "pcie_width": 16,
    }
    assert "NV12" in found["nvlink"] and "Legend" not in found["nvlink"] and "\x1b" not in found["nvlink"]
    assert len(found["nvlink"].splitlines()) == 4


def test_what_a_gpu_does_not_tell_is_none(tool: Tool) -> None:
    tool("nvidia-smi", say(SUPERCHIP))
    (gpu,) = gpus([])
    assert gpu["name"] == "NVIDIA GB10"
    assert gpu["memory_bytes"] is gpu["pcie_width"] is gpu["pcie_generation"] is None


@pytest.mark.parametrize("text", ["No devices were found", "", "a, b, c"])
def test_odd_answers_are_no_gpus(tool: Tool, text: str) -> None:
    tool("nvidia-smi", say(text))
    assert gpus([]) == []


def test_a_hanging_tool_is_a_fault_not_a_hang(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_PROBE_TIMEOUT", "0.2")
    tool("nvidia-smi", "sleep 60")
    start = time.monotonic()
    found = hardware()
    assert time.monotonic() - start < 40
    assert found["gpus"] == [] and found["faults"] == ["nvidia-smi did not answer within 0.2 s"]
    assert found["cpu"]["model"]


@pytest.mark.parametrize("answer", [[MI210], {"gpu_data": [MI210]}])
def test_amd_smi(tool: Tool, answer: object) -> None:
    tool("amd-smi", say(json.dumps(answer)))
    (gpu,) = gpus([])
    assert (gpu["name"], gpu["driver"]) == ("AMD Instinct MI210", "6.8.5")
    assert (gpu["memory_bytes"], gpu["pcie_generation"], gpu["pcie_width"]) == (65520 * 2**20, 4, 16)
    assert "SECRETSERIAL" not in json.dumps(gpu)


def test_rocm_smi(tool: Tool) -> None:
    tool("amd-smi", "exit 1")
    tool("rocm-smi", say(json.dumps(ROCM)))
    found = gpus([])
    assert [gpu["index"] for gpu in found] == [1, 10]
    assert {gpu["name"] for gpu in found} == {"AMD Instinct MI250X"}
    assert found[0]["memory_bytes"] == 68702699520 and found[0]["driver"] == "6.7.0"
    assert found[0]["uuid"] is None


@pytest.mark.parametrize("text", ["WARNING: No AMD GPUs", "[]", "[1, {}]", '{"gpu_data": null}', '"x"'])
def test_odd_amd_answers_are_no_gpus(tool: Tool, text: str) -> None:
    tool("amd-smi", say(text))
    tool("rocm-smi", say(text))
    assert gpus([]) == []
