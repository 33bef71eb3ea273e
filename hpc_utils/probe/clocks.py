"""Clocks, and what holds them down, before, during and after the burn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils.provenance.cgroup import files
from hpc_utils.provenance.cpu import MACHINE, usable
from hpc_utils.provenance.tools import number, read, run_tool

from .check import Check, Facts, count, failed, passed, unknown

if TYPE_CHECKING:
    import torch

EXPECTED = "nothing holds the clocks down under load"
FIELDS = ("clocks.sm", "clocks.max.sm", "temperature.gpu", "power.draw", "power.limit")
# Newer drivers call the reasons "event", older ones "throttle".
REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
# NVML API, nvmlClocksEventReasons. No faults: idle (1), set clocks (2), power cap (4), sync boost (10), display.
HELD = {0x08: "hardware slowdown", 0x20: "too hot (software)", 0x40: "too hot (hardware)", 0x80: "power brake"}
POWER_CAP = 0x04
# Governors that do not follow the load; with intel_pstate and amd-pstate `powersave` is the usual dynamic one.
FIXED_LOW = ("powersave", "conservative", "userspace")


def sample(device: torch.device) -> Facts | None:
    """How the device stands now; None where nobody tells."""
    return gpu(device) if device.type == "cuda" else cpu()


def gpu(device: torch.device) -> Facts | None:
    """An NVIDIA GPU's clocks, by `nvidia-smi`; None for others."""
    import torch

    if torch.version.hip:
        return None
    name = f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}"
    for reason in REASONS:
        said = run_tool(
            "nvidia-smi", name, f"--query-gpu={','.join((*FIELDS, reason))}", "--format=csv,noheader,nounits"
        )
        if said and (facts := parse(said)):
            return facts
    return None


def parse(line: str) -> Facts | None:
    """One line of CSV: MHz now and at most, Celsius, watts now and at most, reasons as a hexadecimal mask."""
    fields = [field.strip() for field in line.strip().split(",")]
    if len(fields) != len(FIELDS) + 1 or not fields[-1].startswith("0x"):
        return None
    names = ("mhz", "most_mhz", "celsius", "watts", "most_watts")
    return dict(zip(names, map(number, fields), strict=False)) | {"reasons": int(fields[-1], 16)}


def cpu(machine: Path = MACHINE) -> Facts:
    """This rank's cores: governor, MHz, how often they and this control group were throttled since they started."""
    folders = [machine / f"sys/devices/system/cpu/cpu{one}" for one in usable()]
    governors = {read(folder / "cpufreq/scaling_governor") for folder in folders} - {None}
    khz = [number(read(folder / "cpufreq/scaling_cur_freq")) for folder in folders]
    heat = [number(read(folder / "thermal_throttle/core_throttle_count")) for folder in folders]
    return {
        "governors": sorted(governors),
        "driver": read(folders[0] / "cpufreq/scaling_driver"),
        "mhz": max((one // 1000 for one in khz if one), default=None),
        "hot": sum(one for one in heat if one is not None) if any(one is not None for one in heat) else None,
        "throttled": _throttled(machine),
    }


def judge(facts: Facts) -> Check:
    """One rank's clocks."""
    return _judge_gpu(facts["clocks"]) if facts["kind"] == "cuda" else _judge_cpu(facts["clocks"])


def _judge_gpu(clocks: Facts) -> Check:
    during = clocks["during"] or clocks["after"]
    if not during:
        return unknown(
            "no tool tells this GPU's clocks", EXPECTED, "`nvidia-smi -q -d PERFORMANCE` (`rocm-smi -c`) by hand"
        )
    said = (
        f"{_say(during['mhz'])} of {_say(during['most_mhz'])} MHz, {_say(during['celsius'])} °C, "
        f"{_say(during['watts'])} of {_say(during['most_watts'])} W under load"
    )
    reasons = during["reasons"] | (clocks["after"] or during)["reasons"]
    held = [name for bit, name in HELD.items() if reasons & bit]
    if held:
        fix = "tell the site's support (cooling, power supply), and leave the node out: `--exclude`"
        return failed(f"{said}; {', '.join(held)}", EXPECTED, fix)
    return passed(said + "; at its power limit, as is usual under full load" * bool(reasons & POWER_CAP), EXPECTED)


def _judge_cpu(clocks: Facts) -> Check:
    before, after = clocks["before"], clocks["after"]
    dynamic = after["driver"] and "pstate" in after["driver"]
    slow = [name for name in after["governors"] if name in FIXED_LOW and not dynamic]
    if slow:
        fix = "`cpupower frequency-set -g performance` (as root; on a laptop: plug it in)"
        return failed(f"frequency governor {', '.join(slow)}", EXPECTED, fix)
    throttled, hot = _more(before, after, "throttled"), _more(before, after, "hot")
    if throttled:
        fix = "the container or the job may use less CPU time than its ranks need: ask for more cores"
        return failed(f"the control group was throttled {count(throttled, 'time')} during the burn", EXPECTED, fix)
    if hot:
        return failed(
            f"cores were throttled for heat {count(hot, 'time')} during the burn",
            EXPECTED,
            "let it cool; is a fan blocked?",
        )
    if after["mhz"] is None and after["hot"] is None:
        return unknown("this machine shows no clocks (a virtual one?); its control group was not throttled", EXPECTED)
    frequency = f"{after['mhz']} MHz, " if after["mhz"] else ""
    return passed(f"{frequency}governor {', '.join(after['governors']) or 'not known'}, not throttled", EXPECTED)


def _throttled(machine: Path) -> int | None:
    """How often this control group or one above it had to wait for its next period."""
    counts = []
    for file in files("cpu.stat", machine):
        fields = dict(line.split(" ", 1) for line in (read(file) or "").splitlines() if " " in line)
        counts.append(number(fields.get("nr_throttled")))
    known = [one for one in counts if one is not None]
    return sum(known) if known else None


def _more(before: Facts, after: Facts, what: str) -> int:
    """How much a counter went up; 0 where it is not told."""
    return max(0, (after[what] or 0) - before[what]) if before[what] is not None else 0


def _say(value: int | None) -> str:
    return "?" if value is None else str(value)
