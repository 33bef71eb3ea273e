"""The driver, the torch build and the GPUs' architecture: do they fit each other?

Rules: a driver runs programs built for its own CUDA major version and older ones, also for later minor versions of it
(NVIDIA, "CUDA Compatibility", minor version compatibility). Machine code `sm_XY` runs on devices of the same major
version X from minor version Y on, with suffix `a` on exactly that one; `compute_XY` is compiled for any later device
("CUDA C++ Programming Guide", compute capabilities). ROCm's machine code is for exactly one architecture.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hpc_utils import provenance
from hpc_utils.provenance.tools import run_tool

from .bench import Bench
from .check import Check, Facts, failed, not_applicable, passed, unknown

EXPECTED = "a torch build that the driver and the GPU can run"
Capability = tuple[int, int]


def look(bench: Bench) -> Facts:
    """torch's build, the driver's newest CUDA, the GPUs on the machine and what they are able to run."""
    import torch

    gpus = provenance.hardware().gpus
    available = torch.cuda.is_available()
    return {
        "wanted": bench.options.device,
        "build": bench.options.torch,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "available": available,
        "gpus": [gpu.name for gpu in gpus],
        "vendor": _vendor(bool(gpus)),
        "driver": next((gpu.driver for gpu in gpus), None),
        "driver_cuda": driver_cuda(),
        "architectures": _architectures(available, bool(torch.version.hip)),
        "built_for": torch.cuda.get_arch_list(),
    }


def judge(facts: Facts) -> Check:
    """One node's torch against its driver and its GPUs."""
    build = f"torch {facts['torch']}"
    if facts["wanted"] == "cpu":
        return not_applicable(f"device=cpu: {build} computes on the CPU")
    vendor = facts["vendor"]
    if not vendor and not facts["available"]:
        if facts["wanted"] == "cuda":
            return failed(f"no GPU found on this machine, {build}", EXPECTED, NO_GPU)
        return not_applicable(f"no GPU on this machine; {build} computes on the CPU")
    machine = f"{facts['gpus'][0] if facts['gpus'] else vendor}, driver {facts['driver'] or 'not known'}"
    made_for = "amd" if facts["hip"] else "nvidia" if facts["cuda"] else ""
    if not made_for:
        return failed(f"{build} is a CPU build, the machine has {machine}", EXPECTED, _install(facts))
    if vendor and vendor != made_for:
        return failed(f"{build} is built for {made_for}, the machine has {machine}", EXPECTED, _install(facts))
    lacking = [one for one in facts["architectures"] if not runs_on(one, facts["built_for"])]
    if lacking and facts["built_for"]:
        kernels = " ".join(facts["built_for"])
        return failed(
            f"{build} has no kernels for {lacking[0]} ({machine}), only {kernels}", EXPECTED, _install(facts)
        )
    if facts["available"]:
        library = f"CUDA {facts['cuda']}" if made_for == "nvidia" else f"ROCm {facts['hip']}"
        knows = f", which knows CUDA {facts['driver_cuda']}" if facts["driver_cuda"] else ""
        return passed(f"{build} ({library}) on {machine}{knows}", EXPECTED)
    if made_for == "nvidia" and facts["driver_cuda"] is None:
        return unknown(f"{build} sees no GPU and no driver library answers ({machine})", EXPECTED, HIDDEN)
    if made_for == "nvidia" and _major(facts["driver_cuda"]) < _major(facts["cuda"]):
        return failed(
            f"{machine} knows CUDA up to {facts['driver_cuda']}, {build} is built for {facts['cuda']}",
            EXPECTED,
            f"{_install(facts)}; or have the driver updated",
        )
    return failed(f"{build} sees no GPU ({machine})", EXPECTED, HIDDEN)


NO_GPU = "ask for nodes with GPUs (`--gpus-per-node`), or study the CPU: device=cpu"
HIDDEN = (
    "look at CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES); in a container start it with --nv (AMD: --rocm); "
    "does `nvidia-smi` (`rocm-smi`) answer?"
)


def runs_on(architecture: str, built_for: Sequence[str]) -> bool:
    """Whether a build for `built_for` (`sm_90`, `compute_90`, `gfx90a`) has code for `architecture`, named alike."""
    if architecture.startswith("gfx"):
        return architecture in built_for
    device = _capability(architecture)
    for one in built_for:
        kind, _, rest = one.partition("_")
        suffix, made_for = rest.lstrip("0123456789"), _capability(one)
        if device is None or made_for is None:
            continue
        if suffix == "a":
            fits = device == made_for
        elif kind == "compute":
            fits = device >= made_for
        else:
            fits = device[0] == made_for[0] and device[1] >= made_for[1]
        if fits:
            return True
    return False


def driver_cuda() -> str | None:
    """The newest CUDA that the driver runs, such as 12.4: from the driver's own library, else from nvidia-smi."""
    with suppress(OSError, AttributeError):
        number = ctypes.c_int()
        # 12040 is 12.4 (CUDA Driver API, cuDriverGetVersion); it needs no GPU and starts nothing.
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value:
            return f"{number.value // 1000}.{number.value % 1000 // 10}"
    return read_banner(run_tool("nvidia-smi") or "")


def read_banner(text: str) -> str | None:
    """`CUDA Version: 12.4` in what `nvidia-smi` prints, `CUDA UMD Version` in newer ones; None for N/A."""
    match = re.search(r"CUDA (?:UMD )?Version: *(\d+\.\d+)", text)
    return match[1] if match else None


def _architectures(available: bool, hip: bool) -> list[str]:
    """The devices' architectures, `sm_90` or `gfx90a`, each once: torch's word, else nvidia-smi's."""
    import torch

    if available:
        found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        if hip:
            return sorted({one.gcnArchName.partition(":")[0] for one in found})
        return sorted({f"sm_{one.major}{one.minor}" for one in found})
    said = run_tool("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader") or ""
    return sorted({f"sm_{major}{minor}" for major, minor in re.findall(r"^(\d+)\.(\d)$", said, re.MULTILINE)})


def _vendor(named: bool) -> str:
    """Whose GPUs the machine has; the kernel knows them also where no tool does."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return "nvidia"
    if Path("/dev/kfd").exists():
        return "amd"
    return "nvidia" if named else ""


def _capability(architecture: str) -> Capability | None:
    """`sm_90a` is (9, 0), `sm_120` is (12, 0)."""
    match = re.fullmatch(r"[a-z]+_(\d+)(\d)[a-z]?", architecture)
    return (int(match[1]), int(match[2])) if match else None


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _install(facts: Facts) -> str:
    """The command that installs the right build: the cluster file's, else the newest that driver and GPU can run."""
    build = facts["build"] or _index(facts)
    if not build:
        return "have the NVIDIA driver updated: no build of torch is made for this one any more"
    source = "the build that the cluster file names" if facts["build"] else "the build for this driver and GPU"
    wheels = f"https://download.pytorch.org/whl/{build}"
    return f"python -m pip install --force-reinstall torch torchvision --index-url {wheels} ({source})"


def _index(facts: Facts) -> str:
    """PyTorch's name of a build. CUDA 12.8 brought Blackwell (10.0); its builds dropped Volta, as those of 13 do."""
    if facts["vendor"] == "amd":
        return "rocm6.4"
    oldest = min((_capability(one) or (0, 0) for one in facts["architectures"]), default=(8, 0))
    major = _major(facts["driver_cuda"]) if facts["driver_cuda"] else 12
    if major >= 13 and oldest >= (7, 5):
        return "cu130"
    if major >= 12:
        return "cu128" if oldest >= (10, 0) else "cu126"
    return "cu118" if major == 11 else ""
