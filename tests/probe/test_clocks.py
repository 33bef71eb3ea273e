"""Clocks and what holds them down: nvidia-smi's CSV, a CPU's files, and every judgement of them."""

from __future__ import annotations

import pytest
import torch

from hpc_utils.probe import clocks
from hpc_utils.probe.check import Verdict

from .conftest import tree

# nvidia-smi --query-gpu=clocks.sm,clocks.max.sm,temperature.gpu,power.draw,power.limit,clocks_event_reasons.active
LOADED = "1980, 1980, 62, 688.41, 700.00, 0x0000000000000004\n"
CPU = {"governors": ["performance"], "driver": "intel_pstate", "mhz": 3100, "hot": 7, "throttled": 3}


def gpu(line: str, after: str | None = None) -> dict:
    return {
        "kind": "cuda",
        "clocks": {"before": None, "during": clocks.parse(line), "after": clocks.parse(after or line)},
    }


def cpu(before: dict, after: dict) -> dict:
    return {"kind": "cpu", "clocks": {"before": CPU | before, "during": None, "after": CPU | after}}


def test_a_line_of_nvidia_smi() -> None:
    assert clocks.parse(LOADED) == {
        "mhz": 1980,
        "most_mhz": 1980,
        "celsius": 62,
        "watts": 688,
        "most_watts": 700,
        "reasons": 4,
    }
    assert clocks.parse("300, [N/A], 40, [N/A], [N/A], 0x1")["most_watts"] is None
    assert clocks.parse('Field "clocks_event_reasons.active" is not a valid field to query.') is None


@pytest.mark.parametrize(
    ("reasons", "verdict", "says"),
    [
        ("0x0000000000000000", Verdict.PASS, "1980 of 1980 MHz, 62 °C, 688 of 700 W"),
        ("0x0000000000000004", Verdict.PASS, "at its power limit"),
        ("0x0000000000000001", Verdict.PASS, "62 °C"),
        ("0x0000000000000020", Verdict.FAIL, "too hot (software)"),
        ("0x0000000000000048", Verdict.FAIL, "hardware slowdown, too hot (hardware)"),
        ("0x0000000000000080", Verdict.FAIL, "power brake"),
    ],
)
def test_a_gpu_under_load(reasons, verdict, says) -> None:
    found = clocks.judge(gpu(LOADED.replace("0x0000000000000004", reasons)))
    assert found.verdict is verdict
    assert says in found.measured


def test_a_reason_that_comes_up_late_counts() -> None:
    assert clocks.judge(gpu(LOADED, LOADED.replace("0x0000000000000004", "0x40"))).verdict is Verdict.FAIL


def test_a_gpu_that_nobody_tells_of_is_unknown() -> None:
    silent = {"kind": "cuda", "clocks": {"before": None, "during": None, "after": None}}
    assert clocks.judge(silent).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("before", "after", "verdict", "says"),
    [
        ({}, {}, Verdict.PASS, "3100 MHz, governor performance"),
        ({}, {"governors": ["powersave"]}, Verdict.PASS, "powersave"),  # intel_pstate's usual one
        ({}, {"governors": ["powersave"], "driver": "acpi-cpufreq"}, Verdict.FAIL, "governor powersave"),
        ({}, {"throttled": 9}, Verdict.FAIL, "throttled 6 times"),
        ({}, {"hot": 8}, Verdict.FAIL, "for heat 1 time during"),
        ({"throttled": None, "hot": None}, {"throttled": None, "hot": None}, Verdict.PASS, "3100 MHz"),
        ({}, {"mhz": None, "hot": None, "governors": []}, Verdict.UNKNOWN, "no clocks"),
    ],
)
def test_a_cpu(before, after, verdict, says) -> None:
    found = clocks.judge(cpu(before, after))
    assert found.verdict is verdict
    assert says in found.measured


def test_a_cpus_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(clocks, "usable", lambda: [0, 1])
    files = {"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.stat": "usage_usec 9\nnr_throttled 4\n"}
    for one, khz, heat in ((0, 2100000, 2), (1, 3300000, 1)):
        folder = f"sys/devices/system/cpu/cpu{one}"
        files |= {
            f"{folder}/cpufreq/scaling_governor": "schedutil\n",
            f"{folder}/cpufreq/scaling_cur_freq": f"{khz}\n",
            f"{folder}/cpufreq/scaling_driver": "acpi-cpufreq\n",
            f"{folder}/thermal_throttle/core_throttle_count": f"{heat}\n",
        }
    assert clocks.cpu(tree(tmp_path, files)) == {
        "governors": ["schedutil"],
        "driver": "acpi-cpufreq",
        "mhz": 3300,
        "hot": 3,
        "throttled": 4,
    }


def test_a_machine_without_such_files(tmp_path) -> None:
    assert clocks.cpu(tmp_path) == {"governors": [], "driver": None, "mhz": None, "hot": None, "throttled": None}


def test_this_machine() -> None:
    assert clocks.sample(torch.device("cpu"))["governors"] is not None


@pytest.mark.gpu
def test_this_machines_gpu() -> None:
    facts = clocks.sample(torch.device("cuda", 0))
    assert torch.version.hip or facts["mhz"] > 0
