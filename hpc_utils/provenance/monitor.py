"""Devices, processors and network of one host, looked at again and again: a process of its own, so that training's Python
is not stopped for it.

    process = start(run / "monitor/node1.csv", 1.0, pids=[4711], devices={"cuda:0": "GPU-..."})
    ...
    stop(process)

Columns: `records.schema.MONITOR`. Each moment's rows are one write, so there are whole rows only, however it ends: with
`stop`, or with the process that started it, even if that is killed.
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

LAST = 5.0  # s that it gets to end by itself
FIRST = 0.1  # s before the first row: utilisation is that of some time
LOOK = 1.0  # s between looks for who started it
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
    path: Path,
    seconds: float,
    *,
    pids: Sequence[int] = (),
    devices: Mapping[str, str] | None = None,
) -> subprocess.Popen:
    """Begin to write `path`, every so many seconds.

    Args:
        pids: the ranks. devices: {what to call it: UUID} of the GPUs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    asked = {"path": str(path), "seconds": seconds, "pids": list(pids), "devices": dict(devices or {})}
    asked |= {"parent": os.getpid(), "cpus": _cpus()}
    root = Path(__file__).resolve().parents[2]
    known = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "hpc_utils.provenance.monitor", json.dumps(asked)],
        env=os.environ | {"PYTHONPATH": known},
        stdin=subprocess.PIPE,  # whose end is ours
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def stop(process: subprocess.Popen) -> str:
    """End it; what it had to complain of, or that it had ended before; "" if all was well."""
    early = process.poll() is not None
    try:
        _, said = process.communicate(timeout=LAST)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    words = said.decode(errors="replace").strip().splitlines()
    if words:
        return words[-1]
    return f"it ended early, with exit code {process.returncode}" if early or process.returncode else ""


def main(asked: Mapping[str, Any]) -> None:
    """Write rows until the other end of stdin is closed, or the parent is gone."""
    os.nice(10)
    _keep_to(asked["cpus"])
    look = Host(asked["pids"], gpus(asked["devices"]))
    handle = os.open(asked["path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(handle, _lines([dict(zip(COLUMNS, COLUMNS, strict=True))]))
    due = time.monotonic() + min(FIRST, asked["seconds"])
    while not _told(due, asked["parent"]):
        os.write(handle, _lines(look.rows()))
        due = max(due + asked["seconds"], time.monotonic())  # late rows are not caught up with
    if os.getppid() == asked["parent"]:  # told in order: the last row has all of the run's traffic
        os.write(handle, _lines(look.rows()))


class Host:
    """One host and its GPUs.

    Args:
        pids: whose memory is counted. gpus: {name: what looks at it}.
    """

    def __init__(self, pids: Sequence[int], gpus: Mapping[str, Callable[[], Row]]) -> None:
        self._name, self._gpus = socket.gethostname(), gpus
        self._ranks = []
        for pid in pids:
            try:
                self._ranks.append(psutil.Process(pid))
            except psutil.Error:  # gone by now
                continue
        psutil.cpu_percent(percpu=True)  # later ones are since the one before
        self._before = traffic()

    def rows(self) -> Iterator[Row]:
        """What is seen now: the host, then its GPUs."""
        now = {"time": f"{time.time():.3f}", "host": self._name}
        yield now | self._host()
        for name, look in self._gpus.items():
            yield now | {"device": name} | look()

    def _host(self) -> Row:
        shares = psutil.cpu_percent(percpu=True)
        allowed = [shares[cpu] for cpu in _allowed() if cpu < len(shares)] or shares
        memory = psutil.virtual_memory()
        clock = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
        return {
            "device": "cpu",
            "utilization_percent": round(sum(allowed) / len(allowed), 1),
            "memory_used_bytes": memory.total - memory.available,
            "temperature_celsius": _hottest(),
            "clock_mhz": round(clock.current) if clock and clock.current else None,
            "rss_bytes": sum(map(_resident, self._ranks)),
        } | {name: value - self._before.get(name, 0) for name, value in traffic().items()}


def traffic(machine: Path = Path("/")) -> dict[str, int]:
    """Bytes that went through this host's interfaces and InfiniBand ports, since it was started."""
    interfaces = [own for name, own in psutil.net_io_counters(pernic=True).items() if name != "lo"]
    found = {
        "network_received_bytes": sum(own.bytes_recv for own in interfaces),
        "network_sent_bytes": sum(own.bytes_sent for own in interfaces),
    }
    for name, counter in (("rdma_received_bytes", "port_rcv_data"), ("rdma_sent_bytes", "port_xmit_data")):
        words = []
        for port in (machine / "sys/class/infiniband").glob(f"*/ports/*/counters/{counter}"):
            try:
                words.append(int(port.read_text()))
            except (OSError, ValueError):
                continue
        if words:
            found[name] = 4 * sum(words)  # Linux' sysfs-class-infiniband: in units of four bytes
    return found


def gpus(devices: Mapping[str, str]) -> dict[str, Callable[[], Row]]:
    """{name: what looks at it} of GPUs by their UUIDs; without NVML their rows lack everything, and `stop` says why."""
    try:
        return {name: functools.partial(seen, nvml.Gpu(uuid, nvml.library())) for name, uuid in devices.items()}
    except Exception as error:  # no package, no driver
        print(f"NVML: {error}", file=sys.stderr)
        return dict.fromkeys(devices, dict)


def seen(gpu: nvml.Gpu) -> Row:
    """What NVML tells of a GPU now."""
    temperature, sm = 0, 1  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM
    rates, memory, power = (
        gpu.ask(f"nvmlDeviceGet{what}") for what in ("UtilizationRates", "MemoryInfo", "PowerUsage")
    )
    reasons = gpu.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        reasons = gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return {
        "utilization_percent": rates and rates.gpu,
        "memory_used_bytes": memory and memory.used,
        "power_watts": None if power is None else power / 1e3,
        "temperature_celsius": gpu.ask("nvmlDeviceGetTemperature", temperature),
        "clock_mhz": gpu.ask("nvmlDeviceGetClockInfo", sm),
        "throttle": throttle(reasons),
    }


def throttle(reasons: int | None) -> str | None:
    """NVML's bits in words; an unknown one as its number."""
    if reasons is None:
        return None
    bits = [1 << place for place in range(reasons.bit_length()) if reasons >> place & 1]
    return "+".join(REASONS.get(bit, hex(bit)) for bit in bits)


def _lines(rows: Iterator[Row] | Sequence[Row]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _told(due: float, parent: int) -> bool:
    """Wait until `due`; True before, once who started us has closed its end of stdin, or is gone.

    Its loader workers, which it forks, have that end too, and close it a while later: so it is looked for as well.
    """
    while True:
        left = due - time.monotonic()
        readable, _, _ = select.select([sys.stdin], [], [], max(0.0, min(left, LOOK)))
        if readable or os.getppid() != parent:
            return True
        if left <= LOOK:
            return False


def _allowed() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _cpus() -> list[int]:
    """Where the job may run: where the rank's launcher may, the rank itself being pinned."""
    try:
        return sorted(os.sched_getaffinity(os.getppid()) | os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return _allowed()


def _keep_to(cpus: Sequence[int]) -> None:
    if cpus and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):  # somewhere else than it was
            os.sched_setaffinity(0, cpus)


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:  # ended
        return 0


def _hottest() -> float | None:
    try:
        sensors = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    known = [one.current for name in ("coretemp", "k10temp", "zenpower") for one in sensors.get(name, ())]
    return max(known, default=None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
