"""Do driver, torch build and GPUs fit each other? Does each rank have a GPU? What do the GPUs' clocks show?

NVIDIA's rules: a driver runs programs built for its own CUDA major version and older ones, also for later minor versions
of it (NVIDIA, "CUDA Compatibility", minor version compatibility). Whether a build has machine code for a GPU shows when
it launches a kernel.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from hpc_utils import provenance
from hpc_utils.provenance import monitor, nvml
from hpc_utils.provenance.tools import number

from .check import (
    Context,
    Facts,
    Observations,
    Result,
    failed,
    judge,
    not_applicable,
    passed,
    unknown,
    worst_or_shared,
)

WHEELS = "https://download.pytorch.org/whl"
HIDDEN = (
    "check CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES); start a container with --nv (AMD: --rocm); does `nvidia-smi` "
    "(`rocm-smi`) answer?"
)
UNMASK = (
    "start one launcher a node with all of its GPUs: `srun --ntasks-per-node=1 --gpus-per-node=N`, without "
    "--gpus-per-task and --gpu-bind; leave CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES) to Slurm"
)


def measure(context: Context) -> Facts:
    """torch's build, the newest CUDA that the driver runs, the node's GPUs, those that were requested, and this rank's."""
    gpus = provenance.hardware().gpus
    visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mine = torch.device("cuda", context.local_rank) if context.local_rank < visible else None
    return {
        "build": context.options.torch,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gpus": [gpu.name for gpu in gpus],
        "vendor": "nvidia" if any(Path("/dev").glob("nvidia[0-9]*")) else "amd" if Path("/dev/kfd").exists() else "",
        "driver": next((gpu.driver for gpu in gpus), None),
        "driver_cuda": _driver_cuda(),
        "requested": number(os.environ.get("SLURM_GPUS_ON_NODE")),
        "visible": visible,
        "ranks": context.ranks_per_node,
        "devices": [str(torch.cuda.get_device_properties(mine).uuid)] if mine else [],
        "kernel_error": _kernel_error(mine) if mine else None,
    }


def _kernel_error(device: torch.device) -> str | None:
    """What torch raises when a kernel is launched on that GPU."""
    try:
        torch.ones(1, device=device).sum().item()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


def _driver_cuda() -> str | None:
    """The newest CUDA that the driver runs, such as 12.4; None without NVML."""
    try:
        version = nvml.library().nvmlSystemGetCudaDriverVersion()
    except Exception:  # pynvml.NVMLError or OSError: no driver
        return None
    return f"{version // 1000}.{version % 1000 // 10}"


@judge("driver and torch", "a torch build that the driver and the GPU can run", each=True)
def judge_driver(facts: Facts) -> Result:
    """One rank's torch against the driver and the GPU."""
    build = f"torch {facts['torch']}"
    vendor = facts["vendor"]
    newest = facts["driver_cuda"]
    if not vendor and not facts["visible"]:
        return not_applicable(f"no GPU on this machine; {build} computes on the CPU")
    limit = f", which runs CUDA up to {newest}" if newest else ""
    machine = f"{next(iter(facts['gpus']), vendor)}, driver {facts['driver'] or 'unknown'}{limit}"
    library = f"ROCm {facts['hip']}" if facts["hip"] else f"CUDA {facts['cuda']}" if facts["cuda"] else "CPU only"
    measured = f"{build} ({library}) on {machine}"
    install = (
        f"python -m pip install --force-reinstall torch torchvision --index-url {WHEELS}/{facts['build']}"
        if facts["build"]
        else f"install a build of torch that supports this driver and GPU: {WHEELS} lists them (cu126, rocm6.4, ...)"
    )
    built_for = "amd" if facts["hip"] else "nvidia" if facts["cuda"] else ""
    if built_for != (vendor or built_for) or not built_for:
        return failed(f"{measured}: built for other devices", install)
    if facts["kernel_error"]:
        return failed(f"{measured} runs no kernel: {facts['kernel_error']}", install)
    if facts["visible"]:
        return passed(measured)
    if built_for == "nvidia" and newest is None:
        return unknown(f"{measured} sees no GPU and NVML does not answer", HIDDEN)
    if built_for == "nvidia" and int(newest.split(".")[0]) < int(facts["cuda"].split(".")[0]):
        return failed(f"{measured}: too old a driver", f"{install}; or have the driver updated")
    return failed(f"{measured} sees no GPU", HIDDEN)


@judge("GPUs", "a GPU of its own for each rank, and all that were requested")
def judge_visible(observations: Observations) -> Result:
    """Each rank alone, then the ranks of a node against each other."""
    return worst_or_shared(_judge_rank, observations, "devices", "two ranks use one GPU", UNMASK)


def _judge_rank(facts: Facts) -> Result:
    requested_gpus = facts["requested"]
    visible = facts["visible"]
    ranks = facts["ranks"]
    on_machine = len(facts["gpus"])
    if not (requested_gpus or visible or on_machine):
        return not_applicable("no GPU, and none requested")
    measured = f"{ranks} rank(s), {visible} GPU(s) visible, "
    measured += f"{on_machine} on the machine" if requested_gpus is None else f"{requested_gpus} requested"
    if not visible or (requested_gpus is not None and visible != requested_gpus):
        return failed(measured, UNMASK)
    if ranks > visible:
        return failed(measured, f"start {visible} ranks a node, or request more GPUs (`--gpus-per-node={ranks}`)")
    if requested_gpus is not None and ranks < visible:
        return failed(measured, f"start {visible} ranks a node (`--nproc-per-node={visible}`), or request fewer GPUs")
    return passed(measured)


# Of `monitor.REASONS`; the others (idle, clocks set by a user, power limit) are normal.
THROTTLED = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}


def clocks(device: torch.device) -> Facts | None:
    """The monitor's values of an NVIDIA GPU, and its maximum clock (MHz) and power (W); None without NVML."""
    try:
        library = nvml.library()
        gpu = nvml.Device(str(torch.cuda.get_device_properties(device).uuid), library)
    except Exception:  # AMD, or no driver
        return None
    sample = monitor.sampled(gpu)
    power = gpu.query("nvmlDeviceGetPowerManagementLimit")
    limits = {
        "most_mhz": gpu.query("nvmlDeviceGetMaxClockInfo", library.NVML_CLOCK_SM),
        "most_watts": power and power / 1e3,
    }
    return None if sample["throttle"] is None else sample | limits


def judge_clocks(during: Facts | None, after: Facts | None) -> Result:
    """One GPU's clocks under load and after it."""
    if not during or not after:
        by_hand = "`nvidia-smi -q -d PERFORMANCE` (`rocm-smi -c`) by hand"
        return unknown("NVML does not show this GPU's clocks", by_hand)
    value = {name: f"{fact:.0f}" if isinstance(fact, int | float) else "?" for name, fact in during.items()}
    measured = (
        f"{value['clock_mhz']} of {value['most_mhz']} MHz, {value['temperature_celsius']} °C, {value['power_watts']} of "
        f"{value['most_watts']} W under load"
    )
    reasons = {reason for sample in (during, after) for reason in sample["throttle"].split("+")}
    if causes := sorted(reasons & THROTTLED):
        fix = "contact the site's support (cooling, power supply), and exclude the node: `--exclude`"
        return failed(f"{measured}; {', '.join(causes)}", fix)
    return passed(measured + "; at its power limit, as is usual under full load" * ("sw_power_cap" in reasons))
