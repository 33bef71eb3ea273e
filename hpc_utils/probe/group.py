"""The process group, joined the way the trainer joins it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from hpc_utils.config import ConfigError, RunConfig

from .bench import Bench
from .check import Check, Facts, count, failed, passed

EXPECTED = "every rank meets all others"
STUCK = (
    "ranks found the launcher but not each other: a firewall between nodes, or a host name that stands for loopback; "
    "set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the cluster's own network (`ip -br addr` lists them; "
    "`network.interface` in the cluster file)"
)


def look(bench: Bench) -> Facts:
    """Join; `bench.ranks` is then set. A refusal is a fact, not a fault."""
    import torch

    if bench.options.device != "cpu" and torch.cuda.is_available():
        _have_nccl_log(bench)
    began = time.monotonic()
    # The group gives up before the look does, and says why. Batches: one sample a rank divides by any number.
    config = RunConfig(
        device=bench.options.device, batch_per_device=1, collective_timeout=max(1.0, 0.8 * bench.patience)
    )
    try:
        from hpc_utils.train import ranks

        bench.joined = ranks.setup(config)
        bench.ranks = bench.joined.__enter__()
        bench.ranks.barrier()
    except Exception as error:
        bench.ranks = None
        return {"error": str(error)[:500], "refused": isinstance(error, ConfigError)}
    return {"backend": bench.ranks.backend, "seconds": time.monotonic() - began, "ranks": bench.ranks.world_size}


def judge(facts: Facts) -> Check:
    """One rank's joining."""
    if "error" in facts:
        return failed(facts["error"], EXPECTED, "as the message says" if facts["refused"] else STUCK)
    return passed(f"{facts['backend']}, {count(facts['ranks'], 'rank')}, {facts['seconds']:.1f} s")


def enter(bench: Bench) -> None:
    """Make this thread the rank's: its device and its number of threads are each thread's own.

    Raises:
        RuntimeError: the group was not joined.
    """
    import torch

    if bench.ranks is None:
        raise RuntimeError("this rank has not joined the process group")
    torch.set_num_threads(bench.ranks.threads)
    if bench.ranks.device.type == "cuda":
        torch.cuda.set_device(bench.ranks.device)


def _have_nccl_log(bench: Bench) -> None:
    """NCCL (and RCCL) reads these when it starts; a collective that hangs must not end the process."""
    bench.nccl_log = Path(tempfile.mkdtemp(prefix="hpc-doctor-")) / "nccl.log"
    os.environ |= {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
        "NCCL_DEBUG_FILE": str(bench.nccl_log),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
    }
