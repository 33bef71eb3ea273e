"""What NCCL (or RCCL) really uses between ranks, from its own log.

The lines are NCCL's (src/transport/net.cc, net_ib, net_socket.cc, p2p.cc, shm.cc and src/init.cc):

    NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB ib0:...
    NCCL INFO Using network IB
    NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA
    NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM

The device after `via` counts only if data go that way; `NET/Socket : Using` is also said by a network that is set up
and then left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hpc_utils.provenance.tools import read

from .bench import Bench
from .check import Check, Facts, Seen, failed, not_applicable, passed, places, unknown
from .group import enter
from .interfaces import fabric

EXPECTED = "the fastest way between ranks that the machine has"
MIB = 2**20


def parse(log: str) -> Facts:
    """NCCL's version, network, ways (`NET/IB`, `P2P`, `SHM`: channels), adapters and interfaces used, GPUDirect."""
    text = "\n".join(line.partition("NCCL INFO ")[2] for line in log.splitlines() if "NCCL INFO " in line)
    channel = r"^Channel .*? via (?:(NET/[^/\n]+)/(\d+)(?:\(\d+\))?(\S*)|([A-Z0-9]+))"
    ways = [(net or way, number, rest) for net, number, rest, way in re.findall(channel, text, re.MULTILINE)]
    adapters = {number: name for number, name in re.findall(r"\[(\d+)\](\w+):\d+/(?:IB|RoCE|Ethernet)", text)}
    used = {number for way, number, _ in ways if way.startswith("NET/IB")}
    version = re.search(r"NCCL version (\S+)", log)
    network = re.findall(r"Using network (.+)", text)
    return {
        "version": version[1] if version else None,
        "network": network[-1].strip() if network else None,
        "ways": dict(Counter(way for way, _, _ in ways)),
        # A virtual adapter, merged of several, has a number beyond those listed.
        "adapters": sorted(adapters[n] for n in used if n in adapters) or sorted(adapters.values() if used else ()),
        "interfaces": re.findall(r"\[\d+\]([\w.-]+):", "".join(re.findall(r"NET/Socket : Using (.*)", text))),
        "direct": any(way.startswith("NET/") and "GDRDMA" in rest for way, _, rest in ways),
        "no_adapter": "NET/IB : No device found" in text,
        "variables": sorted(set(re.findall(r"(NCCL_\w+) set by environment", text)) - {"NCCL_DEBUG_SUBSYS"}),
    }


def look(bench: Bench) -> Facts:
    """All-reduce once, which makes the connections, and read what NCCL says of them."""
    import torch
    import torch.distributed as dist

    enter(bench)
    ranks = bench.ranks
    if ranks.device.type == "cpu" or ranks.world_size == 1:
        return {"backend": ranks.backend, "ranks": ranks.world_size, "nodes": ranks.nodes}
    dist.all_reduce(torch.ones(8 * MIB // 4, device=ranks.device))
    ranks.synchronize()
    seen = parse(read(bench.nccl_log) or "" if bench.nccl_log else "")
    bench.carriers = seen["adapters"] or (seen["interfaces"] if "NET/Socket" in seen["ways"] else [])
    return {"backend": ranks.backend, "ranks": ranks.world_size, "nodes": ranks.nodes, **seen, **fabric()}


def judge(seen: Sequence[Seen]) -> Check:
    """All ranks' logs together: one rank alone tells only of its own channels."""
    facts = seen[0].facts
    if facts["ranks"] == 1:
        return not_applicable("one rank has nobody to talk to")
    if facts["backend"] == "gloo":
        return not_applicable("gloo moves host memory over sockets: see interface")
    ways = sum((Counter(one.facts["ways"]) for one in seen), Counter())
    if not ways:
        fix = "set NCCL_DEBUG=INFO for a run and read its log"
        return unknown(f"{facts['backend']}'s log names no channel", EXPECTED, fix)
    said = f"{facts['backend']} {facts['version'] or ''}".strip() + ": " + ", ".join(sorted(ways))
    return _within(seen, ways, said) if facts["nodes"] == 1 else _between(seen, ways, said)


def _between(seen: Sequence[Seen], ways: Counter[str], said: str) -> Check:
    """Across nodes."""
    on_sockets = [one for one in seen if "NET/Socket" in one.facts["ways"]]
    interfaces = sorted({name for one in on_sockets for name in one.facts["interfaces"]})
    if on_sockets and (faster := [one for one in on_sockets if one.facts["fabric"]]):
        return failed(
            f"{said} over {', '.join(interfaces) or 'an interface not named'}, though there is "
            f"{faster[0].facts['fabric']}",
            EXPECTED,
            _way_to(faster[0].facts),
            places(faster),
        )
    if on_sockets and set(interfaces) <= {"lo"} and interfaces:
        fix = "set NCCL_SOCKET_IFNAME to the cluster's network (`network.interface` in the cluster file)"
        return failed(f"{said} over the loopback interface", EXPECTED, fix, places(on_sockets))
    if on_sockets:
        return passed(f"{said} over {', '.join(interfaces) or 'an interface not named'}; no faster network", EXPECTED)
    if not any(way.startswith("NET/") for way in ways):
        return unknown(f"{said}: no channel between nodes was logged", EXPECTED)
    adapters = sorted({name for one in seen for name in one.facts["adapters"]})
    direct = all(one.facts["direct"] for one in seen if any(way.startswith("NET/") for way in one.facts["ways"]))
    how = "with GPUDirect RDMA" if direct else "through host memory (no GPUDirect RDMA: is nvidia_peermem loaded?)"
    return passed(f"{said} ({', '.join(adapters) or seen[0].facts['network']}) {how}", EXPECTED)


def _within(seen: Sequence[Seen], ways: Counter[str], said: str) -> Check:
    """Inside one node."""
    if any(way.startswith("NET/") for way in ways):
        fix = (
            "ranks of one node do not recognise each other: start them in one container, not one each, and share "
            "/dev/shm (`--ipc=host`); unset NCCL_P2P_DISABLE and NCCL_SHM_DISABLE"
        )
        return failed(f"{said}: a network inside one node", EXPECTED, fix)
    if "SHM" in ways and seen[0].facts["nvlink"]:
        fix = "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL; `nvidia-smi topo -p2p r` says which pairs of GPUs may"
        return failed(f"{said}: host memory, though the GPUs have NVLink", EXPECTED, fix)
    return passed(said, EXPECTED)


def _way_to(facts: Facts) -> str:
    """How to get the network that is there but not used."""
    variables = facts["variables"]
    if "NCCL_IB_DISABLE" in variables or "NCCL_NET" in variables:
        return f"unset {' and '.join(name for name in variables if name in ('NCCL_IB_DISABLE', 'NCCL_NET'))}"
    if facts["fabric"] == "Slingshot":
        return "load the aws-ofi-nccl plugin (aws-ofi-rccl on AMD), and let a container see it and libfabric"
    if facts["no_adapter"] and not facts["verbs"]:
        return "the container hides the adapters: bind /dev/infiniband and give it rdma-core (libibverbs) inside"
    if facts["no_adapter"] and "NCCL_IB_HCA" in variables:
        return "NCCL_IB_HCA names no adapter of this node: `ibstat -l` lists them (mlx5_0, ..., not ib0)"
    return (
        "NCCL found no adapter that it can use: is libibverbs there (`ibv_devinfo`)? NCCL_IB_HCA says which, "
        "NCCL_SOCKET_IFNAME which interface they meet over"
    )
