"""A monitor: devices, processors and network of one host, sampled at intervals by a separate process.

    process = start(run / "monitor/node1.csv", 1.0, ranks={"rank0": 4711}, devices={"cuda:0": "GPU-..."})
    ...
    stop(process)

Columns: `monitor` in `records/schema.toml`; a new one is added there and in `Host` or `sampled`. The rows of one moment are
one write, so the file never holds part of a row. The process ends at `stop`, or with its parent, even if that is killed.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from hpc_utils.records import schema

from . import nvml
from .cpu import usable
from .gpu import with_package
from .tools import number, read_text

GRACE = 5.0  # s that the process gets to end by itself
FIRST = 0.1  # s before the first row: utilisation is an average over some time
CHECK = 1.0  # s between checks for the parent
COLUMNS = schema.names(schema.MONITOR)

# nvmlClocksEventReasons (NVML's reference manual), called throttle reasons before driver 535.
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

Row = dict[str, Any]


def start(
    path: Path, seconds: float, *, ranks: Mapping[str, int] | None = None, devices: Mapping[str, str] | None = None
) -> subprocess.Popen:
    """Start a process that writes `path`, a set of rows every so many seconds.

    Args:
        ranks: {name: pid} of the ranks. devices: {name: UUID} of the GPUs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    task = {
        "path": str(path),
        "seconds": seconds,
        "ranks": dict(ranks or {}),
        "devices": dict(devices or {}),
        "parent": os.getpid(),
        "cpus": _cpus_of_job(),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "hpc_utils.provenance.monitor", json.dumps(task)],
        env=with_package(),
        stdin=subprocess.PIPE,  # held open by this process until `stop`
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def stop(process: subprocess.Popen) -> str:
    """End the process and return its last message; "" if all was well."""
    early = process.poll() is not None
    try:
        _, messages = process.communicate(timeout=GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        _, messages = process.communicate()
    if lines := messages.decode(errors="replace").strip().splitlines():
        return lines[-1]
    return f"it ended early, with exit code {process.returncode}" if early or process.returncode else ""


def main(task: Mapping[str, Any]) -> None:
    """Write rows until the other end of stdin is closed, or the parent has ended."""
    os.nice(10)
    with contextlib.suppress(AttributeError, OSError):  # macOS, or these CPUs are not this process's
        os.sched_setaffinity(0, task["cpus"])
    host = Host(task["ranks"], gpus(task["devices"]))
    handle = os.open(task["path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(handle, _lines([dict(zip(COLUMNS, COLUMNS, strict=True))]))
    due = time.monotonic() + min(FIRST, task["seconds"])
    while not _ended(due, task["parent"]):
        os.write(handle, _lines(host.rows()))
        due = max(due + task["seconds"], time.monotonic())  # late rows are not made up for
    if os.getppid() == task["parent"]:  # ended by `stop`: the last row has all of the run's traffic
        os.write(handle, _lines(host.rows()))


class Host:
    """One host and its GPUs.

    Args:
        ranks: {name: pid} of processes whose memory is counted. gpus: {name: function that samples it}.
    """

    def __init__(self, ranks: Mapping[str, int], gpus: Mapping[str, Callable[[], Row]]) -> None:
        self._name, self._gpus = socket.gethostname(), gpus
        self._ranks = {name: psutil.Process(pid) for name, pid in ranks.items() if psutil.pid_exists(pid)}
        psutil.cpu_percent(percpu=True)  # each later call covers the time since the one before
        self._before = traffic()
        self._used = {name: (time.monotonic(), _tree(process)[2]) for name, process in self._ranks.items()}

    def rows(self) -> Iterator[Row]:
        """One row of the host, then one of each rank and GPU."""
        now = {"time": f"{time.time():.3f}", "host": self._name}
        ranks = [{"device": name} | self._rank(name) for name in self._ranks]
        yield now | self._host() | {"rss_bytes": sum(row["rss_bytes"] for row in ranks)}
        yield from (now | row for row in ranks)
        for name, sample in self._gpus.items():
            yield now | {"device": name} | sample()

    def _rank(self, name: str) -> Row:
        previous_time, previous_seconds = self._used[name]
        moment = time.monotonic()
        resident, virtual, seconds = _tree(self._ranks[name])
        self._used[name] = moment, seconds
        # A process that ended takes its time with it.
        used = 100 * max(0.0, seconds - previous_seconds) / (moment - previous_time)
        return {"utilization_percent": round(used, 1), "rss_bytes": resident, "virtual_bytes": virtual}

    def _host(self) -> Row:
        shares = psutil.cpu_percent(percpu=True)
        allowed = [shares[cpu] for cpu in usable() if cpu < len(shares)] or shares
        memory = psutil.virtual_memory()
        clock = psutil.cpu_freq()
        return {
            "device": "cpu",
            "utilization_percent": round(sum(allowed) / len(allowed), 1),
            "memory_used_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
            "temperature_celsius": _hottest(),
            "clock_mhz": round(clock.current) if clock and clock.current else None,
        } | {name: value - self._before.get(name, 0) for name, value in traffic().items()}


def traffic(machine: Path = Path("/")) -> dict[str, int]:
    """Bytes through this host's interfaces and InfiniBand ports since its boot."""
    interfaces = [counters for name, counters in psutil.net_io_counters(pernic=True).items() if name != "lo"]
    byte_counts = {
        "network_received_bytes": sum(counters.bytes_recv for counters in interfaces),
        "network_sent_bytes": sum(counters.bytes_sent for counters in interfaces),
    }
    for name, counter in (("rdma_received_bytes", "port_rcv_data"), ("rdma_sent_bytes", "port_xmit_data")):
        ports = (machine / "sys/class/infiniband").glob(f"*/ports/*/counters/{counter}")
        words = [number(text) for text in map(read_text, ports)]
        if counts := [count for count in words if count is not None]:
            byte_counts[name] = 4 * sum(counts)  # Linux' sysfs-class-infiniband: in units of four bytes
    return byte_counts


def gpus(devices: Mapping[str, str]) -> dict[str, Callable[[], Row]]:
    """{name: function that samples it} of GPUs by their UUIDs; without NVML their rows are empty, and `stop` returns the reason."""
    try:
        return {name: functools.partial(sampled, nvml.Device(uuid, nvml.library())) for name, uuid in devices.items()}
    except Exception as error:  # no package, no driver
        print(f"NVML: {error}", file=sys.stderr)
        return dict.fromkeys(devices, dict)


def sampled(gpu: nvml.Device) -> Row:
    """NVML's present values of a GPU."""
    temperature, sm = 0, 1  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM
    rates, memory, power = (
        gpu.query(f"nvmlDeviceGet{what}") for what in ("UtilizationRates", "MemoryInfo", "PowerUsage")
    )
    reasons = gpu.query("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        reasons = gpu.query("nvmlDeviceGetCurrentClocksThrottleReasons")
    return {
        "utilization_percent": rates and rates.gpu,
        "memory_used_bytes": memory and memory.used,
        "memory_total_bytes": memory and memory.total,
        "power_watts": None if power is None else power / 1e3,
        "temperature_celsius": gpu.query("nvmlDeviceGetTemperature", temperature),
        "clock_mhz": gpu.query("nvmlDeviceGetClockInfo", sm),
        "throttle": throttle(reasons),
    }


def throttle(reasons: int | None) -> str | None:
    """The names of NVML's bits, joined by +; an unknown bit is its number."""
    if reasons is None:
        return None
    bits = [1 << place for place in range(reasons.bit_length()) if reasons >> place & 1]
    return "+".join(REASONS.get(bit, hex(bit)) for bit in bits)


def _lines(rows: Iterator[Row] | Sequence[Row]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _ended(due: float, parent: int) -> bool:
    """Wait until `due`; True before, once the parent has closed its end of stdin, or has ended.

    The parent's forked loader workers hold that end too and close it later, so the parent itself is checked as well.
    """
    while True:
        left = due - time.monotonic()
        readable, _, _ = select.select([sys.stdin], [], [], max(0.0, min(left, CHECK)))
        if readable or os.getppid() != parent:
            return True
        if left <= CHECK:
            return False


def _cpus_of_job() -> list[int]:
    """The CPUs of the rank's launcher and of the rank, which is pinned."""
    try:
        return sorted(os.sched_getaffinity(os.getppid()) | os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return usable()


def _tree(process: psutil.Process) -> tuple[int, int, float]:
    """(resident bytes, virtual bytes, processor seconds) of the process and those it started but this one."""
    resident, virtual, seconds = 0, 0, 0.0
    with contextlib.suppress(psutil.Error):  # ended
        for member in (process, *process.children(recursive=True)):
            if member.pid != os.getpid():
                memory = member.memory_info()
                times = member.cpu_times()
                resident += memory.rss
                virtual += memory.vms
                seconds += times.user + times.system
    return resident, virtual, seconds


def _hottest() -> float | None:
    try:
        sensors = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    temperatures = [
        sensor.current for name in ("coretemp", "k10temp", "zenpower") for sensor in sensors.get(name, ())
    ]
    return max(temperatures, default=None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
