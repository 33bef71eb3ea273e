"""Which torch builds fit a driver; GPUs requested, visible and used; a GPU's clocks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hpc_utils.doctor import gpu
from hpc_utils.doctor.check import Verdict
from tests.support import Nvml

from .conftest import alone, seen

A100 = {
    "build": "",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "hip": None,
    "visible": 1,
    "kernel_error": None,
    "gpus": ["NVIDIA A100-SXM4-40GB"],
    "vendor": "nvidia",
    "driver": "535.104.05",
    "driver_cuda": "12.2",
}
BARE = A100 | {"cuda": None, "torch": "2.13.0+cpu", "visible": 0}
NO_KERNEL = {"kernel_error": "CUDA error: no kernel image is available for execution on the device"}


@pytest.mark.parametrize(
    ("facts", "installs"),
    [
        (BARE | {"build": "cu124"}, "whl/cu124"),  # of the cluster file
        (A100 | {"vendor": "amd"}, "rocm"),
        (A100 | {"cuda": None, "hip": "6.2"}, "cu126"),
        (A100 | NO_KERNEL, "supports this driver"),
        (A100 | {"cuda": "13.0", "visible": 0}, "driver updated"),
    ],
)
def test_a_build_that_does_not_fit_fails_with_how_to_install_another(facts, installs) -> None:
    found = gpu.judge_driver(facts)
    assert found.verdict is Verdict.FAIL
    assert installs in found.fix


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"visible": 0}, Verdict.FAIL),  # hidden from a build that fits
        ({"visible": 0, "driver_cuda": None}, Verdict.UNKNOWN),
        ({"visible": 0, "vendor": "", "gpus": []}, Verdict.NOT_APPLICABLE),
    ],
)
def test_a_build_that_fits_and_hidden_unused_and_missing_gpus(facts, verdict) -> None:
    assert gpu.judge_driver(A100 | facts).verdict is verdict


def test_this_machine_is_measured() -> None:
    facts = gpu.measure(alone(torch="cu126"))
    assert facts["build"] == "cu126" and facts["torch"] and not facts["kernel_error"]


FOUR = {"requested": 4, "gpus": ["A100"] * 4, "visible": 4, "ranks": 4}


def node(**different: object) -> list:
    """Four ranks of one node, a device each."""
    return seen(*({**FOUR, "devices": [f"uuid-{rank}"]} | different for rank in range(4)), per_node=4)


@pytest.mark.parametrize(
    ("facts", "verdict", "fix"),
    [
        ({}, Verdict.PASS, ""),
        ({"visible": 1}, Verdict.FAIL, "--gpus-per-task"),
        ({"requested": None, "visible": 0}, Verdict.FAIL, "CUDA_VISIBLE_DEVICES"),
        ({"ranks": 8}, Verdict.FAIL, "start 4 ranks"),
        ({"ranks": 2}, Verdict.FAIL, "--nproc-per-node=4"),
        ({"devices": ["uuid-0"]}, Verdict.FAIL, "--gpu-bind"),
        ({"requested": None, "gpus": [], "visible": 0, "devices": []}, Verdict.NOT_APPLICABLE, ""),
        ({"requested": None, "ranks": 1}, Verdict.PASS, ""),  # a laptop may leave GPUs unused
    ],
)
def test_gpus_requested_visible_and_used(facts, verdict, fix) -> None:
    found = gpu.judge_visible(node(**facts))
    assert found.verdict is verdict
    assert fix in found.fix


def test_ranks_that_share_a_device_are_named_but_not_across_nodes() -> None:
    ranks = node()
    ranks[3].facts["devices"] = ["uuid-1"]
    assert gpu.judge_visible(ranks).where == "node0 rank 1, node0 rank 3"
    one = {**FOUR, "requested": 1, "visible": 1, "ranks": 1, "devices": ["uuid-0"]}
    assert gpu.judge_visible(seen(one, one)).verdict is Verdict.PASS


def test_clocks_are_those_of_nvml(monkeypatch) -> None:
    import torch

    library = Nvml(
        nvmlDeviceGetHandleByUUID="handle",
        nvmlDeviceGetClockInfo=1980,
        nvmlDeviceGetTemperature=62,
        nvmlDeviceGetPowerUsage=688_410,
        nvmlDeviceGetPowerManagementLimit=700_000,
        nvmlDeviceGetCurrentClocksThrottleReasons=4,
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1"))
    monkeypatch.setattr(gpu.nvml, "library", lambda: library)
    found = gpu.clocks(torch.device("cuda", 0))
    assert H100.items() <= found.items()
    judged = gpu.judge_clocks(found, found)
    assert judged.verdict is Verdict.PASS and "1980 of ? MHz, 62 °C, 688 of 700 W" in judged.measured


def test_the_newest_cuda_is_that_of_nvml(monkeypatch) -> None:
    monkeypatch.setattr(gpu.nvml, "library", lambda: Nvml(nvmlSystemGetCudaDriverVersion=12040))
    assert gpu._driver_cuda() == "12.4"
    monkeypatch.setattr(gpu.nvml, "library", Nvml)
    assert gpu._driver_cuda() is None


H100 = {"clock_mhz": 1980, "most_mhz": None, "temperature_celsius": 62, "power_watts": 688.41, "most_watts": 700.0}
H100 |= {"throttle": "sw_power_cap"}


@pytest.mark.parametrize(
    ("during", "after", "verdict"),
    [
        ("", "", Verdict.PASS),
        ("sw_power_cap", "gpu_idle", Verdict.PASS),
        ("sw_thermal_slowdown", "", Verdict.FAIL),
        ("sw_power_cap", "hw_power_brake_slowdown", Verdict.FAIL),
    ],
)
def test_a_gpu_under_load(during, after, verdict) -> None:
    assert gpu.judge_clocks(H100 | {"throttle": during}, H100 | {"throttle": after}).verdict is verdict


@pytest.mark.gpu
def test_this_machines_gpu() -> None:
    import torch

    assert torch.version.hip or gpu.clocks(torch.device("cuda", 0))["clock_mhz"] > 0
