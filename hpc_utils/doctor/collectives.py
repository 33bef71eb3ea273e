"""Do the ranks form a process group? How fast is an all-reduce against the nominal link? Do the nodes' clocks agree?"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import ChainMap
from pathlib import Path
from statistics import median_high

import torch

from hpc_utils.allreduce_cost import bandwidths
from hpc_utils.config import ConfigError, RunConfig

from . import network
from .bench.allreduce import measure
from .check import (
    Context,
    Facts,
    Observations,
    Result,
    by_host,
    failed,
    judge,
    locations,
    not_applicable,
    passed,
    unknown,
)
from .process import Console

UNREACHABLE = (
    "ranks reached the launcher but not each other: a firewall between nodes, or a host name that resolves to loopback; "
    "set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the cluster's own network (`ip -br addr` lists interfaces; "
    "`network.interface` in the cluster file)"
)


def join(context: Context) -> Facts:
    """Join the process group as the trainer does, and set `context.ranks`."""
    if torch.cuda.is_available():
        _log_nccl(context)
    began = time.monotonic()
    # The group times out before the check, with its reason. One sample per rank: the batch suits any number of ranks.
    config = RunConfig(batch_per_device=1, collective_timeout=max(1.0, 0.8 * context.timeout))
    try:
        from hpc_utils.train.ranks import setup

        context.membership = setup(config)
        ranks = context.membership.__enter__()
        ranks.barrier()
    except Exception as error:
        return {"error": str(error)[:500], "refused": isinstance(error, ConfigError)}
    context.ranks = ranks
    return {"backend": ranks.backend, "seconds": time.monotonic() - began, "ranks": ranks.world_size}


def _log_nccl(context: Context) -> None:
    """NCCL (and RCCL) reads these when it starts; a collective that hangs must not end the process."""
    folder = tempfile.mkdtemp(prefix="hpc-doctor-")
    context.cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
    context.nccl_log = f"{folder}/nccl.log"
    os.environ |= {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
        "NCCL_DEBUG_FILE": context.nccl_log,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
    }


@judge("process group", "every rank connects to all others", each=True)
def judge_join(facts: Facts) -> Result:
    """Whether one rank joins the process group."""
    if "error" in facts:
        return failed(facts["error"], "see the message" if facts["refused"] else UNREACHABLE)
    return passed(f"{facts['backend']}, {facts['ranks']} rank(s), {facts['seconds']:.1f} s")


ENOUGH = 0.6  # of the nominal link
BUSY = 0.5  # of a processor, used or waited for by all threads of a rank: above it the processor limits the rate


def measure_all_reduce(context: Context) -> Facts:
    """Times of a few sizes on the slowest rank, and the nominal speed of the links."""
    ranks = context.enter()
    busy_before = _processor_seconds()
    began = time.perf_counter()
    seconds = context.share(0.5, 6.0)
    record = measure(
        ranks, repeats=1, smallest=2**20, largest=64, seconds=seconds, console=Console(False), parts=False
    )
    busy = (_processor_seconds() - busy_before) / (time.perf_counter() - began)
    ports = network.active_ports()
    used = context.adapters if ranks.backend != "gloo" else network.connected()
    links = {
        name: ports[name][0] if name in ports else network.speed(name)
        for name in used
        if not network.loopback([name])
    }
    return {
        "ranks": context.world_size,
        "nodes": context.nodes,
        "backend": ranks.backend,
        "sizes": record["groups"]["all"]["samples"],
        "busy": busy,
        "link_gbit": context.options.link_gbit or None,
        "links": links,
    }


def _processor_seconds() -> float:
    """Seconds that this process's threads have run or waited for a processor; 0 where the kernel does not count."""
    fields = [path.read_text().split() for path in Path("/proc/self/task").glob("*/schedstat")]
    return sum(int(running) + int(waiting) for running, waiting, _ in fields) / 1e9


@judge("all-reduce")
def judge_all_reduce(observations: Observations) -> Result:
    """The largest size's bus bandwidth against the slowest node's links."""
    facts = observations[0].facts
    size, (seconds,) = facts["sizes"][-1]["bytes"], facts["sizes"][-1]["seconds"]
    algorithm, bus = (rate / 1e9 for rate in bandwidths(size, seconds, facts["ranks"]))
    measured = (
        f"{size // 2**20} MiB in {seconds * 1e3:.1f} ms: algorithm {algorithm:.2f} GB/s, bus {bus:.2f} GB/s "
        f"({8 * bus:.1f} Gbit/s)"
    )
    if facts["nodes"] == 1:
        return not_applicable(f"no link inside one node; {measured}")
    nominal, source = _nominal(observations)
    if nominal is None:
        fix = "give it: --link-gbit, or `network.link_gbit` in the cluster file"
        return unknown(f"{measured}, on a link of unknown speed", fix)
    expected = f"at least {ENOUGH:.0%} of {nominal:g} Gbit/s ({source})"
    if 8 * bus >= ENOUGH * nominal:
        return passed(measured, expected=expected)
    if facts["backend"] == "gloo" and max(observation["busy"] for observation in observations) > BUSY:
        fix = "gloo adds up on the CPU: give ranks cores of their own, or measure this link with NCCL"
        return unknown(f"{measured}: the processor is the limit here, not the link", fix, expected=expected)
    fix = (
        "compare with `iperf3` or `ib_write_bw` between two nodes; does another job use the link, is a cable or port "
        "at a lower rate (`ibstat`, `ethtool`), does the transport check above pass?"
    )
    return failed(measured, fix, expected=expected)


def _nominal(observations: Observations) -> tuple[float | None, str]:
    """Gbit/s of the slowest node's links together, and the source of that number."""
    if observations[0]["link_gbit"]:
        return observations[0]["link_gbit"], "--link-gbit"
    nodes = [ChainMap(*(observation["links"] for observation in node)) for node in by_host(observations).values()]
    if any(not links or None in links.values() for links in nodes):
        return None, ""
    slowest = min(nodes, key=lambda links: sum(links.values()))
    return sum(slowest.values()), ", ".join(sorted(slowest))


APART = 1.0  # s


def measure_clock(context: Context) -> Facts:
    """This node's time as the ranks leave a barrier, three times."""
    ranks = context.enter()
    times = []
    for _ in range(3):
        ranks.barrier()
        times.append(time.time())
    return {"times": times}


@judge("clock skew", f"at most {APART:g} s between nodes: records compare times")
def judge_clock(observations: Observations) -> Result:
    """The smallest difference of three: ranks that leave a barrier at different times only increase it."""
    rounds = zip(*(observation["times"] for observation in observations), strict=True)
    best = min(rounds, key=lambda times: max(times) - min(times))
    apart = max(best) - min(best)
    middle = median_high(best)
    if apart <= APART:
        return passed(f"{apart * 1e3:.1f} ms")
    deviating = [
        observation
        for observation, moment in zip(observations, best, strict=True)
        if abs(moment - middle) > APART / 2
    ]
    return failed(
        f"{apart:.1f} s apart",
        "correct the nodes' time (NTP: `chronyc tracking`, `timedatectl`)",
        locations(deviating),
    )
