"""The paths that NCCL (or RCCL) uses between ranks, from its log.

The lines are NCCL's (src/transport/net.cc, net_ib, net_socket.cc, p2p.cc, shm.cc and src/init.cc):

    NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ib0:...
    NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA
    NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM

Only channels count: `NET/Socket : Using` also appears for a network that is set up and then not used.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist

from hpc_utils.provenance.tools import read_text

from .check import Context, Facts, Observations, Result, failed, judge, locations, not_applicable, passed, unknown
from .network import fabric

UNUSED = (
    "unset NCCL_IB_DISABLE, NCCL_NET and NCCL_IB_HCA; does `ibv_devinfo` list the adapter, is `ulimit -l` unlimited? A container needs "
    "/dev/infiniband and libibverbs (rdma-core); Slingshot needs the aws-ofi-nccl plugin (aws-ofi-rccl on AMD) and libfabric"
)


def parse(log: str) -> Facts:
    """NCCL's version, paths (`NET/IB`, `P2P`, `SHM`: channels), adapters and interfaces used, GPUDirect."""
    text = "\n".join(line.partition("NCCL INFO ")[2] for line in log.splitlines())
    channel = r"^Channel .*? via (?:(NET/[^/\n]+)/(\d+)(?:\(\d+\))?(\S*)|([A-Z0-9]+))"
    channels = [(net or path, number, flags) for net, number, flags, path in re.findall(channel, text, re.MULTILINE)]
    adapters = dict(re.findall(r"\[(\d+)\](\w+):\d+/(?:IB|RoCE|Ethernet)", text))
    used = {number for path, number, _ in channels if path.startswith("NET/IB")}
    version = re.search(r"NCCL version (\S+)", text)
    return {
        "version": version[1] if version else "",
        "paths": dict(Counter(path for path, _, _ in channels)),
        # A virtual adapter, merged from several, has a number that is not listed.
        "adapters": sorted(adapters[n] for n in used if n in adapters) or sorted(adapters.values() if used else ()),
        "interfaces": re.findall(r"\[\d+\]([\w.-]+):", "".join(re.findall(r"NET/Socket : Using (.*)", text))),
        "direct": any(path.startswith("NET/") and "GDRDMA" in flags for path, _, flags in channels),
    }


def measure(context: Context) -> Facts:
    """All-reduce once, which connects the ranks, and read NCCL's log of it."""
    ranks = context.enter()
    facts = {"backend": ranks.backend, "nodes": ranks.nodes}
    if ranks.device.type == "cpu":
        return facts
    dist.all_reduce(torch.ones(8 * 2**20 // 4, device=ranks.device))
    ranks.synchronize()
    log = parse(read_text(Path(context.nccl_log)) or "")
    context.adapters = log["adapters"] or (log["interfaces"] if "NET/Socket" in log["paths"] else [])
    return facts | log | fabric()


@judge("transport", "the fastest path between ranks that the machine has")
def judge_transport(observations: Observations) -> Result:
    """The logs of all ranks together: each lists only its own channels."""
    facts = observations[0].facts
    if facts["backend"] == "gloo":
        return not_applicable("gloo sends host memory over sockets: see interface")
    paths = {path for observation in observations for path in observation["paths"]}
    if not paths:
        return unknown(f"{facts['backend']}'s log names no channel", "set NCCL_DEBUG=INFO for a run and read its log")
    measured = f"{facts['backend']} {facts['version']}: {', '.join(sorted(paths))}"
    return (
        _judge_one_node(observations, paths, measured)
        if facts["nodes"] == 1
        else _judge_nodes(observations, measured)
    )


def _judge_nodes(observations: Observations, measured: str) -> Result:
    if on_sockets := [observation for observation in observations if "NET/Socket" in observation["paths"]]:
        interfaces = sorted({name for observation in on_sockets for name in observation["interfaces"]})
        measured += f" over {', '.join(interfaces) or 'an interface that the log does not name'}"
        if faster := [observation for observation in on_sockets if observation["fabric"]]:
            measured += f", although the node has {faster[0]['fabric']}"
            return failed(measured, UNUSED, locations(faster))
        if interfaces == ["lo"]:
            fix = "set NCCL_SOCKET_IFNAME to the cluster's network (`network.interface` in the cluster file)"
            return failed(measured, fix, locations(on_sockets))
        return passed(f"{measured}; no faster network")
    remote = [
        observation for observation in observations if any(path.startswith("NET/") for path in observation["paths"])
    ]
    if not remote:
        return unknown(f"{measured}: the log names no channel between nodes")
    how = "with GPUDirect RDMA"
    if not all(observation["direct"] for observation in remote):
        how = "through host memory (no GPUDirect RDMA: is nvidia_peermem loaded?)"
    adapters = sorted({name for observation in observations for name in observation["adapters"]})
    return passed(f"{measured} ({', '.join(adapters) or 'adapters not named'}) {how}")


def _judge_one_node(observations: Observations, paths: set[str], measured: str) -> Result:
    if any(path.startswith("NET/") for path in paths):
        fix = (
            "ranks of one node do not recognise each other: start them in one container, not one each, and share "
            "/dev/shm (`--ipc=host`); unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE"
        )
        return failed(f"{measured}: a network inside one node", fix)
    if "SHM" in paths and observations[0]["nvlink"]:
        fix = "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL; `nvidia-smi topo -p2p r` lists the pairs of GPUs that can"
        return failed(f"{measured}: host memory, although the GPUs have NVLink", fix)
    return passed(measured)
