"""The monitor as a process of its own: what it writes, and that it never outlives whoever started it."""

from __future__ import annotations

import csv
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hpc_utils.provenance import monitor, nvml
from tests.support import Nvml, wait_for

HANG = 120  # s


def rows(path: Path) -> list[dict[str, str]]:
    text = path.read_text() if path.exists() else ""
    assert not text or text.endswith("\n"), "whole rows only"
    found = list(csv.DictReader(text.splitlines()))
    assert all(None not in row and None not in row.values() for row in found)
    return found


def test_rows_of_this_host(tmp_path: Path) -> None:
    path = tmp_path / "monitor/here.csv"
    begun = time.time()
    process = monitor.start(path, 0.1, ranks={"rank5": os.getpid()}, devices={"cuda:3": "GPU-0"})
    child = subprocess.Popen([sys.executable, "-c", "held = b'x' * 2**28; input()"], stdin=subprocess.PIPE)
    least = psutil.Process().memory_info().rss + 2**27
    wait_for(lambda: any(int(row["rss_bytes"] or 0) > least for row in rows(path)))
    child.communicate()
    message = monitor.stop(process)
    assert message.startswith("NVML: ") or nvml.installed()
    cpu, ranks, gpu = (
        [row for row in rows(path) if row["device"] == device] for device in ("cpu", "rank5", "cuda:3")
    )
    assert all(row["utilization_percent"] == row["power_watts"] == "" and row["time"] for row in gpu)
    assert [row["rss_bytes"] for row in ranks] == [row["rss_bytes"] for row in cpu]
    assert all(int(row["virtual_bytes"]) > int(row["rss_bytes"]) and row["utilization_percent"] for row in ranks)
    assert list(cpu[0]) == monitor.COLUMNS and {row["host"] for row in cpu} == {socket.gethostname()}
    times = [float(row["time"]) for row in cpu]
    assert begun - 1 < times[0] and times == sorted(times)
    for row in cpu:
        assert 0 <= float(row["utilization_percent"]) <= 100
        assert 0 < int(row["rss_bytes"]) < int(row["memory_total_bytes"]) > int(row["memory_used_bytes"]) > 0
        assert int(row["network_received_bytes"]) >= 0


def test_it_ends_with_a_rank_that_is_killed(tmp_path: Path) -> None:
    """... also if a worker of the rank still holds the pipe."""
    path = tmp_path / "here.csv"
    code = "import os, sys, time; from hpc_utils.provenance import monitor\n"
    code += f"print(monitor.start(monitor.Path({str(path)!r}), 0.05).pid, flush=True)\n"
    code += "worker = os.fork()\nif worker: print(worker, flush=True)\ntime.sleep(600)\n"
    rank = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process, worker = psutil.Process(int(rank.stdout.readline())), int(rank.stdout.readline())
    try:
        wait_for(lambda: rows(path))
        rank.send_signal(signal.SIGKILL)
        rank.wait()
        process.wait(HANG)
        assert rows(path)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_an_early_end_is_reported(tmp_path: Path) -> None:
    process = monitor.start(tmp_path / "x.csv", 0.05)
    wait_for(lambda: rows(tmp_path / "x.csv"))
    process.kill()
    process.wait()
    assert "exit code -9" in monitor.stop(process)


def test_the_values_that_nvml_reports_of_a_gpu() -> None:
    library = Nvml(
        nvmlDeviceGetHandleByUUID="handle",
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=97, memory=40),
        nvmlDeviceGetMemoryInfo=SimpleNamespace(total=40 << 30, free=30 << 30, used=10 << 30),
        nvmlDeviceGetTemperature=61,
        nvmlDeviceGetClockInfo=1410,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x4 | 0x40,
    )
    assert monitor.sampled(nvml.Device("1-2", library)) == {
        "utilization_percent": 97, "memory_used_bytes": 10 << 30, "memory_total_bytes": 40 << 30, "power_watts": None, "temperature_celsius": 61,
        "clock_mhz": 1410, "throttle": "sw_power_cap+hw_thermal_slowdown",
    }  # fmt: skip
    assert (monitor.throttle(0), monitor.throttle(0x1 | 0x1000)) == ("", "gpu_idle+0x1000")


def test_infiniband_s_own_counters_are_read_in_their_units(tmp_path: Path) -> None:
    for port, words in (("mlx5_0/ports/1", 10), ("mlx5_1/ports/1", 5)):
        folder = tmp_path / "sys/class/infiniband" / port / "counters"
        folder.mkdir(parents=True)
        (folder / "port_rcv_data").write_text(f"{words}\n")
        (folder / "port_xmit_data").write_text("N/A\n")
    found = monitor.traffic(tmp_path)
    assert found["rdma_received_bytes"] == 60
    assert "rdma_sent_bytes" not in found
    assert "rdma_received_bytes" not in monitor.traffic(tmp_path / "no such machine")


@pytest.mark.gpu
def test_a_real_gpu_is_seen(tmp_path: Path) -> None:
    import torch

    if torch.version.hip:
        pytest.skip("NVML is NVIDIA's")
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    process = monitor.start(tmp_path / "x.csv", 0.2, devices={"cuda:0": uuid})
    wait_for(lambda: any(row["device"] == "cuda:0" for row in rows(tmp_path / "x.csv")))
    assert monitor.stop(process) == ""
    (row, *_) = (row for row in rows(tmp_path / "x.csv") if row["device"] == "cuda:0")
    assert int(row["memory_used_bytes"]) > 0
    assert 0 < float(row["temperature_celsius"]) < 120
