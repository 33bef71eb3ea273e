"""Driver, torch build and architecture: which fit, which do not, and which build to install."""

from __future__ import annotations

import pytest

from hpc_utils.probe import device
from hpc_utils.probe.bench import Bench, Options
from hpc_utils.probe.check import Verdict

A100 = {
    "wanted": "auto",
    "build": "",
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "hip": None,
    "available": True,
    "gpus": ["NVIDIA A100-SXM4-40GB"],
    "vendor": "nvidia",
    "driver": "535.104.05",
    "driver_cuda": "12.2",
    "architectures": ["sm_80"],
    "built_for": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"],
}
BARE = A100 | {"cuda": None, "torch": "2.13.0+cpu", "available": False, "built_for": []}
CUDA13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]


def test_a_build_that_fits_passes_and_names_the_device() -> None:
    found = device.judge(A100)
    assert found.verdict is Verdict.PASS
    assert "A100" in found.measured
    assert "535.104.05" in found.measured


@pytest.mark.parametrize(
    ("facts", "says", "installs"),
    [
        (BARE, "CPU build", "whl/cu126"),
        (BARE | {"build": "cu124"}, "CPU build", "whl/cu124 (the build that the cluster file names)"),
        (BARE | {"driver_cuda": "13.0"}, "CPU build", "whl/cu130"),
        (BARE | {"driver_cuda": "13.0", "architectures": ["sm_70"]}, "CPU build", "whl/cu126"),
        (BARE | {"architectures": ["sm_100"], "driver_cuda": "12.8"}, "CPU build", "whl/cu128"),
        (BARE | {"driver_cuda": "11.4"}, "CPU build", "whl/cu118"),
        (BARE | {"driver_cuda": "10.2"}, "CPU build", "have the NVIDIA driver updated"),
        (BARE | {"vendor": "amd", "gpus": ["AMD Instinct MI250X"]}, "CPU build", "whl/rocm"),
        (A100 | {"vendor": "amd"}, "built for nvidia", "whl/rocm"),
        (A100 | {"cuda": None, "hip": "6.2"}, "built for amd", "whl/cu126"),
        # The CUDA 13 build has nothing for a V100, whatever the driver (measured: it needs driver 580, and sm_75).
        (A100 | {"architectures": ["sm_70"], "built_for": CUDA13, "driver_cuda": "13.0"}, "sm_70", "whl/cu126"),
        (
            A100 | {"torch": "2.13.0", "cuda": "13.0", "available": False, "built_for": CUDA13},
            "knows CUDA up to 12.2",
            "whl/cu126",
        ),
    ],
)
def test_a_build_that_does_not_fit_fails_with_the_command_that_installs_another(facts, says, installs) -> None:
    found = device.judge(facts)
    assert found.verdict is Verdict.FAIL
    assert says in found.measured
    assert installs in found.fix
    assert "pip install" in found.fix or "driver updated" in found.fix


def test_gpus_that_are_hidden_from_a_build_that_fits() -> None:
    found = device.judge(A100 | {"available": False})
    assert found.verdict is Verdict.FAIL
    assert "CUDA_VISIBLE_DEVICES" in found.fix
    nobody_knows = device.judge(A100 | {"available": False, "driver_cuda": None})
    assert nobody_knows.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [("auto", Verdict.NOT_APPLICABLE), ("cpu", Verdict.NOT_APPLICABLE), ("cuda", Verdict.FAIL)],
)
def test_a_machine_without_gpus(wanted, verdict) -> None:
    facts = BARE | {"wanted": wanted, "vendor": "", "gpus": [], "driver": None, "driver_cuda": None}
    assert device.judge(facts | {"architectures": []}).verdict is verdict


def test_a_study_of_the_cpu_does_not_mind_its_gpus() -> None:
    assert device.judge(BARE | {"wanted": "cpu"}).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("architecture", "built_for", "runs"),
    [
        ("sm_80", ["sm_80"], True),
        ("sm_86", ["sm_80"], True),  # a later minor version
        ("sm_80", ["sm_86"], False),  # an earlier one
        ("sm_90", ["sm_80"], False),  # machine code is for one major version
        ("sm_90", ["compute_80"], True),  # which PTX is not
        ("sm_75", ["compute_80"], False),
        ("sm_90", ["sm_90a"], True),
        ("sm_100", ["sm_90a"], False),
        ("sm_103", ["sm_100"], True),
        ("sm_120", ["sm_100", "sm_120"], True),
        ("gfx90a", ["gfx90a", "gfx942"], True),
        ("gfx908", ["gfx90a"], False),
        ("sm_80", [], False),
    ],
)
def test_which_machine_code_runs_where(architecture, built_for, runs) -> None:
    assert device.runs_on(architecture, built_for) is runs


@pytest.mark.parametrize(
    ("banner", "newest"),
    [
        ("| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |", "12.2"),
        ("| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |", "13.0"),
        ("| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |", "13.3"),
        ("| NVIDIA-SMI 580.126.09             Driver Version: 580.126.09     CUDA Version: N/A      |", None),
        ("", None),
    ],
)
def test_the_newest_cuda_in_nvidia_smis_banner(banner, newest) -> None:
    assert device.read_banner(banner) == newest


def test_this_machine_can_be_looked_at_and_judged() -> None:
    import torch

    facts = device.look(Bench(Options(torch="cu126"), exchange=None))
    assert facts["torch"] == torch.__version__
    assert facts["build"] == "cu126"
    if torch.cuda.is_available():
        assert facts["architectures"]
        assert device.judge(facts).verdict is Verdict.PASS
    elif not facts["vendor"]:
        assert device.judge(facts).verdict is Verdict.NOT_APPLICABLE
