"""NCCL's log: what it uses, whether that is the fastest path, and how to get there.

The lines have the form of those in public reports, with other hosts and addresses: InfiniBand with GPUDirect as in
NVIDIA/nccl#1189 and #707, an external InfiniBand plugin as in #1814, sockets as in #226 and #1053, a container that
hides its adapters as in #952, Libfabric as in #527, and RCCL's `comm ... nRanks` behind a channel.
"""

from __future__ import annotations

import pytest

from hpc_utils.doctor import nccl
from hpc_utils.doctor.check import Verdict

from .conftest import seen

INFINIBAND = """\
gpu05:17:17 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
gpu05:17:52 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/RoCE [RO]; OOB ib0:10.1.0.5<0>
gpu05:17:52 [0] NCCL INFO Channel 00/04 :    0   1   2   3
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA
gpu05:17:60 [0] NCCL INFO Channel 01/0 : 3[1] -> 0[0] [receive] via NET/IB/1(1)/GDRDMA
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""
SOCKETS = """\
gpu05:17:17 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
gpu05:17:52 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.2.0.5<0>
gpu05:17:52 [0] NCCL INFO NET/Socket : Using [0]eth0:10.2.0.5<0> [1]eno2.100:10.3.0.5<0>
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0 comm 0x2083dd50 nRanks 02
"""
LOOPBACK = SOCKETS.replace("[0]eth0:10.2.0.5<0> [1]eno2.100:10.3.0.5<0>", "[0]lo:127.0.0.1<0>")
LIBFABRIC = """\
nid01:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA
"""
SHARED = """\
host:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.2.0.5<0>
host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
"""
PEERS = SHARED.replace("SHM/direct/direct", "P2P/IPC")
OLD_BUS_ID = "h:1:2 [0] NCCL INFO Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA\n"
EXTERNAL = "h:986:1254 [6] NCCL INFO Channel 06/0 : 54[6] -> 38[6] [receive] via NET/IBext_v8/1\n"


def facts(log: str, nodes: int = 2, fabric: str = "", **more: object) -> dict:
    machine = {"fabric": fabric, "nvlink": False}
    return {"backend": "nccl", "nodes": nodes, **nccl.parse(log), **machine, **more}


@pytest.mark.parametrize(
    ("log", "parsed"),
    [
        (
            INFINIBAND,
            {"version": "2.28.9+cuda13.0", "paths": {"NET/IB": 2, "P2P": 1}, "direct": True}
            | {"adapters": ["mlx5_0", "mlx5_1"]},  # of three, those that channels go through
        ),
        (OLD_BUS_ID, {"paths": {"NET/IB": 1}}),
        (EXTERNAL, {"paths": {"NET/IBext_v8": 1}}),
        (
            SOCKETS,
            {"paths": {"NET/Socket": 2}, "interfaces": ["eth0", "eno2.100"], "adapters": [], "direct": False},
        ),
        (LIBFABRIC, {"paths": {"NET/AWS Libfabric": 1}, "direct": True}),
        (SHARED, {"paths": {"SHM": 1}}),  # not the network that is only set up
    ],
)
def test_the_log_is_parsed(log, parsed) -> None:
    assert parsed.items() <= nccl.parse(log).items()


@pytest.mark.parametrize(
    ("rank", "verdict", "measured"),
    [
        (facts(INFINIBAND, fabric="InfiniBand"), Verdict.PASS, "(mlx5_0, mlx5_1) with GPUDirect RDMA"),
        (facts(INFINIBAND.replace("/GDRDMA", ""), fabric="InfiniBand"), Verdict.PASS, "nvidia_peermem"),
        (facts(LIBFABRIC, fabric="Slingshot"), Verdict.PASS, "NET/AWS Libfabric"),
        (facts(SOCKETS), Verdict.PASS, "over eno2.100, eth0"),
        (facts(SOCKETS, fabric="RoCE"), Verdict.FAIL, "RoCE"),
        (facts(LOOPBACK), Verdict.FAIL, "over lo"),
        (facts(PEERS, nodes=1, nvlink=True), Verdict.PASS, "P2P"),
        (facts(SHARED, nodes=1, nvlink=True), Verdict.FAIL, "NVLink"),
        (facts(SOCKETS, nodes=1), Verdict.FAIL, "inside one node"),
        (facts(""), Verdict.UNKNOWN, ""),
        ({"backend": "gloo", "nodes": 2}, Verdict.NOT_APPLICABLE, ""),
    ],
)
def test_the_fastest_path_passes(rank, verdict, measured) -> None:
    found = nccl.judge_transport(seen(rank, rank))
    assert found.verdict is verdict
    assert measured in found.measured


def test_ranks_that_do_not_use_the_fabric_are_named() -> None:
    found = nccl.judge_transport(seen(facts(INFINIBAND, fabric="InfiniBand"), facts(SOCKETS, fabric="InfiniBand")))
    assert (found.verdict, found.where, found.fix) == (Verdict.FAIL, "node1 rank 1", nccl.UNUSED)
