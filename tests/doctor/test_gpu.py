"""Which torch builds fit a driver and which to install; GPUs requested, visible and used; a GPU's clocks."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hpc_utils.doctor import gpu
from hpc_utils.doctor.check import Verdict

from .conftest import alone, seen

A100 = {
    "wanted": "auto",
    "build": "",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "hip": None,
    "visible": 1,
    "kernel_error": None,
    "gpus": ["NVIDIA A100-SXM4-40GB"],
    "vendor": "nvidia",
    "driver": "535.104.05",
    "driver_cuda": [12, 2],
    "capability": [8, 0],
}
BARE = A100 | {"cuda": None, "torch": "2.13.0+cpu", "visible": 0}
NO_KERNEL = {"kernel_error": "CUDA error: no kernel image is available for execution on the device"}


def test_a_build_that_fits_passes() -> None:
    found = gpu.judge_driver(A100)
    assert found.verdict is Verdict.PASS
    assert "A100" in found.measured and "535.104.05" in found.measured


@pytest.mark.parametrize(
    ("facts", "installs"),
    [
        (BARE, "whl/cu126"),
        (BARE | {"build": "cu124"}, "whl/cu124"),  # of the cluster file
        (BARE | {"driver_cuda": [13, 0]}, "whl/cu130"),
        (BARE | {"driver_cuda": [13, 0], "capability": [7, 0]}, "whl/cu126"),
        (BARE | {"driver_cuda": [12, 8], "capability": [10, 0]}, "whl/cu128"),
        (BARE | {"driver_cuda": [11, 4]}, "whl/cu118"),
        (BARE | {"driver_cuda": [10, 2]}, "driver updated"),
        (BARE | {"vendor": "amd", "gpus": ["AMD Instinct MI250X"]}, "whl/rocm"),
        (A100 | {"vendor": "amd"}, "whl/rocm"),
        (A100 | {"cuda": None, "hip": "6.2"}, "whl/cu126"),
        # The CUDA 13 build has nothing for a V100, whatever the driver (measured: it needs driver 580, and sm_75).
        (A100 | NO_KERNEL | {"capability": [7, 0], "driver_cuda": [13, 0]}, "whl/cu126"),
        (A100 | {"cuda": "13.0", "visible": 0}, "whl/cu126"),
    ],
)
def test_a_build_that_does_not_fit_fails_with_the_command_that_installs_another(facts, installs) -> None:
    found = gpu.judge_driver(facts)
    assert found.verdict is Verdict.FAIL
    assert installs in found.fix


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({"visible": 0}, Verdict.FAIL),  # hidden from a build that fits
        ({"visible": 0, "driver_cuda": None}, Verdict.UNKNOWN),
        ({"wanted": "cpu"}, Verdict.NOT_APPLICABLE),
        ({"visible": 0, "vendor": "", "gpus": []}, Verdict.NOT_APPLICABLE),
        ({"visible": 0, "vendor": "", "gpus": [], "wanted": "cuda"}, Verdict.FAIL),
    ],
)
def test_hidden_unused_and_missing_gpus(facts, verdict) -> None:
    assert gpu.judge_driver(A100 | facts).verdict is verdict


def test_this_machine_is_measured_and_judged() -> None:
    import torch

    facts = gpu.measure(alone(torch="cu126"))
    assert (facts["torch"], facts["build"], facts["kernel_error"]) == (torch.__version__, "cu126", None)
    if torch.cuda.is_available() or not facts["vendor"]:
        expected = Verdict.PASS if torch.cuda.is_available() else Verdict.NOT_APPLICABLE
        assert gpu.judge_driver(facts).verdict is expected


FOUR = {
    "wanted": "auto",
    "requested": 4,
    "gpus": ["A100"] * 4,
    "visible": 4,
    "ranks": 4,
    "mask": "CUDA_VISIBLE_DEVICES",
}


def node(**different: object) -> list:
    """Four ranks of one node, a device each."""
    return seen(*({**FOUR, "device": f"uuid-{rank}"} | different for rank in range(4)), per_node=4)


@pytest.mark.parametrize(
    ("facts", "verdict", "fix"),
    [
        ({}, Verdict.PASS, ""),
        ({"requested": None}, Verdict.PASS, ""),
        ({"visible": 1}, Verdict.FAIL, "--gpus-per-task"),
        ({"visible": 0, "gpus": []}, Verdict.FAIL, "CUDA_VISIBLE_DEVICES"),
        ({"requested": None, "visible": 0}, Verdict.FAIL, "unset CUDA_VISIBLE_DEVICES"),
        ({"ranks": 8}, Verdict.FAIL, "start 4 ranks"),
        ({"ranks": 2}, Verdict.FAIL, "--nproc-per-node=4"),
        ({"device": "uuid-0"}, Verdict.FAIL, "--gpu-bind"),
        ({"requested": None, "gpus": [], "visible": 0, "device": None}, Verdict.NOT_APPLICABLE, ""),
        ({"wanted": "cpu", "visible": 0, "device": None}, Verdict.NOT_APPLICABLE, ""),
        ({"requested": None, "ranks": 1}, Verdict.PASS, ""),  # a laptop may leave GPUs unused
    ],
)
def test_gpus_requested_visible_and_used(facts, verdict, fix) -> None:
    found = gpu.judge_visible(node(**facts))
    assert found.verdict is verdict
    assert fix in found.fix


def test_ranks_that_share_a_device_are_named_but_not_across_nodes() -> None:
    ranks = node()
    ranks[3].facts["device"] = "uuid-1"
    assert gpu.judge_visible(ranks).where == "node0 rank 1, node0 rank 3"
    one = {**FOUR, "requested": 1, "visible": 1, "ranks": 1, "device": "uuid-0"}
    assert gpu.judge_visible(seen(one, one)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({"SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_GPUS": "0,1,2,3"}, 2),
        ({"SLURM_STEP_GPUS": "0,1"}, 2),
        ({"SLURM_JOB_GPUS": "3"}, 1),
        ({"SLURM_JOB_ID": "7"}, None),
    ],
)
def test_gpus_that_slurm_gave(environment, number) -> None:
    assert gpu.requested(environment) == number


class Nvml:
    """NVML whose functions answer with what `answers` holds of their name."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(self, **answers: object) -> None:
        self._answers = answers

    NVMLError = RuntimeError

    def __getattr__(self, name: str):
        def answer(*_: object) -> object:
            if name not in self._answers:
                raise RuntimeError("Not Supported")
            return self._answers[name]

        return answer


H100 = {"mhz": 1980, "most_mhz": None, "celsius": 62, "watts": 688, "most_watts": 700, "reasons": 4}


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
    assert gpu.clocks(torch.device("cuda", 0)) == H100


def test_newest_cuda_and_capability_are_those_of_nvml(monkeypatch) -> None:
    library = Nvml(
        nvmlSystemGetCudaDriverVersion=12040,
        nvmlDeviceGetCount=2,
        nvmlDeviceGetHandleByIndex="handle",
        nvmlDeviceGetCudaComputeCapability=(9, 0),
    )
    monkeypatch.setattr(gpu.nvml, "library", lambda: library)
    assert gpu._cuda() == {"driver_cuda": [12, 4], "capability": [9, 0]}
    monkeypatch.setattr(gpu.nvml, "library", Nvml)
    assert gpu._cuda() == {"driver_cuda": None, "capability": None}


@pytest.mark.parametrize(
    ("during", "after", "verdict"),
    [(0, 0, Verdict.PASS), (4, 4, Verdict.PASS), (1, 1, Verdict.PASS), (0x20, 0, Verdict.FAIL), (0x48, 0, Verdict.FAIL),
     (0x80, 0x80, Verdict.FAIL), (4, 0x40, Verdict.FAIL)],
)  # fmt: skip
def test_a_gpu_under_load(during, after, verdict) -> None:
    assert gpu.judge_clocks(H100 | {"reasons": during}, H100 | {"reasons": after}).verdict is verdict


def test_a_gpu_without_nvml_is_unknown() -> None:
    assert gpu.judge_clocks(None, None).verdict is Verdict.UNKNOWN


@pytest.mark.gpu
def test_this_machines_gpu() -> None:
    import torch

    assert torch.version.hip or gpu.clocks(torch.device("cuda", 0))["mhz"] > 0
