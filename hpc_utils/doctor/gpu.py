"""Do driver, torch build and GPUs fit each other? Does each rank have a GPU? What do the GPUs' clocks show?

NVIDIA's rules: a driver runs programs built for its own CUDA major version and older ones, also for later minor versions
of it (NVIDIA, "CUDA Compatibility", minor version compatibility). Whether a build has machine code for a GPU shows when
it launches a kernel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils import provenance
from hpc_utils.provenance import monitor, nvml

from .check import (
    Context,
    Facts,
    Observations,
    Result,
    Verdict,
    each,
    failed,
    locations,
    not_applicable,
    passed,
    sharing,
    unknown,
)
from .cpu import UNTHROTTLED

if TYPE_CHECKING:
    import torch

WHEELS = "https://download.pytorch.org/whl"
FITS = "a torch build that the driver and the GPU can run"
NO_GPU = "request nodes with GPUs (`--gpus-per-node`), or study the CPU: device=cpu"
HIDDEN = (
    "check CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES); start a container with --nv (AMD: --rocm); does `nvidia-smi` "
    "(`rocm-smi`) answer?"
)


def measure(context: Context) -> Facts:
    """torch's build, the newest CUDA that the driver runs, the node's GPUs, those that were requested, and this rank's."""
    import torch

    gpus = provenance.hardware().gpus
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mine = torch.device("cuda", context.local_rank) if context.local_rank < visible else None
    return {
        "wanted": context.options.device,
        "build": context.options.torch,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gpus": [gpu.name for gpu in gpus],
        "vendor": "nvidia" if any(Path("/dev").glob("nvidia[0-9]*")) else "amd" if Path("/dev/kfd").exists() else "",
        "driver": next((gpu.driver for gpu in gpus), None),
        "driver_cuda": _driver_cuda(),
        "requested": requested(os.environ),
        "visible": visible,
        "ranks": context.ranks_per_node,
        "devices": [str(torch.cuda.get_device_properties(mine).uuid)] if mine else [],
        "kernel_error": _kernel_error(mine) if mine else None,
        "mask": next((name for name in MASKS if name in os.environ), MASKS[0]),
    }


def _kernel_error(device: torch.device) -> str | None:
    """What torch raises when a kernel is launched on that GPU."""
    import torch

    try:
        torch.ones(1, device=device).sum().item()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


def requested(environment: Mapping[str, str]) -> int | None:
    """GPUs of this node that Slurm gave to the job; None if it names none."""
    number = environment.get("SLURM_GPUS_ON_NODE", "")
    if number.isdigit():
        return int(number)
    listed = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS")
    return len(listed.split(",")) if listed else None


def _driver_cuda() -> str | None:
    """The newest CUDA that the driver runs, such as 12.4; None without NVML."""
    try:
        number = nvml.library().nvmlSystemGetCudaDriverVersion()
    except Exception:  # pynvml.NVMLError or OSError: no driver
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def judge_driver(facts: Facts) -> Result:
    """One rank's torch against the driver and the GPU."""
    build, vendor, driver_cuda = f"torch {facts['torch']}", facts["vendor"], facts["driver_cuda"]
    if facts["wanted"] == "cpu":
        return not_applicable(f"device=cpu: {build} computes on the CPU")
    if not vendor and not facts["visible"]:
        if facts["wanted"] == "cuda":
            return failed(f"no GPU on this machine, {build}", FITS, NO_GPU)
        return not_applicable(f"no GPU on this machine; {build} computes on the CPU")
    machine = f"{facts['gpus'][0] if facts['gpus'] else vendor}, driver {facts['driver'] or 'unknown'}"
    built_for = "amd" if facts["hip"] else "nvidia" if facts["cuda"] else ""
    if not built_for:
        return failed(f"{build} is a CPU build, the machine has {machine}", FITS, _install(facts))
    if vendor and vendor != built_for:
        return failed(f"{build} is built for {built_for}, the machine has {machine}", FITS, _install(facts))
    if facts["kernel_error"]:
        return failed(f"{build} runs no kernel on {machine}: {facts['kernel_error']}", FITS, _install(facts))
    if facts["visible"]:
        library = f"ROCm {facts['hip']}" if facts["hip"] else f"CUDA {facts['cuda']}"
        return passed(
            f"{build} ({library}) on {machine}" + f", which runs CUDA up to {driver_cuda}" * bool(driver_cuda), FITS
        )
    if built_for == "nvidia" and driver_cuda is None:
        return unknown(f"{build} sees no GPU and NVML does not answer ({machine})", FITS, HIDDEN)
    if built_for == "nvidia" and int(driver_cuda.split(".")[0]) < int(facts["cuda"].split(".")[0]):
        return failed(
            f"{machine} runs CUDA up to {driver_cuda}, {build} is built for {facts['cuda']}",
            FITS,
            f"{_install(facts)}; or have the driver updated",
        )
    return failed(f"{build} sees no GPU ({machine})", FITS, HIDDEN)


def _install(facts: Facts) -> str:
    """The command that installs the cluster file's build, else how to choose one."""
    if build := facts["build"]:
        return f"python -m pip install --force-reinstall torch torchvision --index-url {WHEELS}/{build}"
    newest = f"for CUDA up to {facts['driver_cuda']} " if facts["driver_cuda"] else ""
    return f"install a build of torch {newest}that supports this GPU: {WHEELS} lists them (cu126, rocm6.4, ...)"


OWN = "a GPU of its own for each rank, and all that were requested"
MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
UNMASK = (
    "start one launcher a node with all of its GPUs: `srun --ntasks-per-node=1 --gpus-per-node=N`, without "
    "--gpus-per-task and --gpu-bind; leave {} to Slurm"
)


def judge_visible(seen: Observations) -> Result:
    """Each rank alone, then the ranks of a node against each other."""
    found = each(_judge_rank)(seen)
    if not (shared := sharing(seen, "devices")) or found.verdict is Verdict.FAIL:
        return found
    return failed("two ranks use one GPU", OWN, UNMASK.format(seen[0].facts["mask"]), locations(shared[1]))


def _judge_rank(facts: Facts) -> Result:
    asked, visible, ranks, on_machine = facts["requested"], facts["visible"], facts["ranks"], len(facts["gpus"])
    if facts["wanted"] == "cpu":
        return not_applicable("device=cpu: GPUs are not used")
    if not (asked or visible or on_machine):
        return not_applicable("no GPU, and none requested")
    if asked is not None and visible != asked:
        return failed(f"{asked} requested, {visible} visible", OWN, UNMASK.format(facts["mask"]))
    if not visible:
        return failed(f"{on_machine} on the machine, none visible to torch", OWN, f"unset {facts['mask']}")
    if ranks > visible:
        fix = f"start {visible} ranks a node, or request more GPUs (`--gpus-per-node={ranks}`)"
        return failed(f"{ranks} ranks share {visible} GPUs", OWN, fix)
    if asked is not None and ranks < visible:
        fix = f"start {visible} ranks a node (`--nproc-per-node={visible}`), or request fewer GPUs"
        return failed(f"{ranks} of {visible} requested GPUs used", OWN, fix)
    return passed(f"{ranks} of {visible} visible GPUs used", OWN)


# Of `monitor.REASONS`; the others (idle, clocks set by a user, power limit) are normal.
THROTTLED = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}


def clocks(device: torch.device) -> Facts | None:
    """The monitor's values of an NVIDIA GPU, and its maximum clock (MHz) and power (W); None without NVML."""
    import torch

    try:
        library = nvml.library()
        gpu = nvml.Device(str(torch.cuda.get_device_properties(device).uuid), library)
    except Exception:  # AMD, or no driver
        return None
    now, power = monitor.sampled(gpu), gpu.query("nvmlDeviceGetPowerManagementLimit")
    most = {
        "most_mhz": gpu.query("nvmlDeviceGetMaxClockInfo", library.NVML_CLOCK_SM),
        "most_watts": power and power / 1e3,
    }
    return None if now["throttle"] is None else now | most


def judge_clocks(during: Facts | None, after: Facts | None) -> Result:
    """One GPU's clocks under load and after it."""
    if not (shown := during or after):
        by_hand = "`nvidia-smi -q -d PERFORMANCE` (`rocm-smi -c`) by hand"
        return unknown("NVML does not show this GPU's clocks", UNTHROTTLED, by_hand)
    value = {name: f"{number:.0f}" if isinstance(number, int | float) else "?" for name, number in shown.items()}
    measured = (
        f"{value['clock_mhz']} of {value['most_mhz']} MHz, {value['temperature_celsius']} °C, {value['power_watts']} of "
        f"{value['most_watts']} W under load"
    )
    reasons = {reason for one in (shown, after or shown) for reason in one["throttle"].split("+")}
    if found := sorted(reasons & THROTTLED):
        fix = "contact the site's support (cooling, power supply), and exclude the node: `--exclude`"
        return failed(f"{measured}; {', '.join(found)}", UNTHROTTLED, fix)
    limit = "; at its power limit, as is usual under full load" if "sw_power_cap" in reasons else ""
    return passed(measured + limit, UNTHROTTLED)
