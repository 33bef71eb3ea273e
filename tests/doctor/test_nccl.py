"""NCCL's log: what it used, whether that is the best the machine has, and how to get there.

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
gpu05:17:17 [0] NCCL INFO cudaDriverVersion 13000
gpu05:17:17 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
gpu05:17:52 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so
gpu05:17:52 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/RoCE [RO]; OOB ib0:10.1.0.5<0>
gpu05:17:52 [0] NCCL INFO Using network IB
gpu05:17:52 [0] NCCL INFO Channel 00/04 :    0   1   2   3
gpu05:17:52 [0] NCCL INFO Trees [0] 1/-1/-1->0->2 [1] 1/-1/-1->0->2
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 3[1] -> 0[0] [receive] via NET/IB/0/GDRDMA
gpu05:17:60 [0] NCCL INFO Channel 01/0 : 3[1] -> 0[0] [receive] via NET/IB/1(1)/GDRDMA
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
gpu05:17:60 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read
gpu05:17:52 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
"""
SOCKETS = """\
gpu05:17:17 [0] NCCL INFO NCCL version 2.28.9+cuda13.0
gpu05:17:52 [0] NCCL INFO NCCL_IB_HCA set by environment to ib0.
gpu05:17:52 [0] NCCL INFO NET/IB : No device found.
gpu05:17:52 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.2.0.5<0>
gpu05:17:52 [0] NCCL INFO Failed to initialize NET plugin IB
gpu05:17:52 [0] NCCL INFO NET/Socket : Using [0]eth0:10.2.0.5<0> [1]eno2.100:10.3.0.5<0>
gpu05:17:52 [0] NCCL INFO Using network Socket
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
gpu05:17:60 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0 comm 0x2083dd50 nRanks 02
"""
LIBFABRIC = """\
nid01:7:9 [0] NCCL INFO NET/OFI Selected Provider is cxi
nid01:7:9 [0] NCCL INFO Using network AWS Libfabric
nid01:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA
"""
SHARED = """\
host:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.2.0.5<0>
host:1:2 [0] NCCL INFO Using network Socket
host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct
"""
PEERS = SHARED.replace("SHM/direct/direct", "P2P/IPC")
OLD_BUS_ID = "h:1:2 [0] NCCL INFO Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA\n"
EXTERNAL = "h:986:1254 [6] NCCL INFO Channel 06/0 : 54[6] -> 38[6] [receive] via NET/IBext_v8/1\n"


def facts(log: str, nodes: int = 2, fabric: str = "", **more: object) -> dict:
    machine = {"fabric": fabric, "verbs": bool(fabric), "nvlink": False}
    return {"backend": "nccl", "nodes": nodes, **nccl.parse(log), **machine, **more}


def test_infiniband_with_gpudirect() -> None:
    told = nccl.parse(INFINIBAND)
    assert told["version"] == "2.28.9+cuda13.0"
    assert told["network"] == "IB"
    assert told["paths"] == {"NET/IB": 2, "P2P": 2}
    assert told["adapters"] == ["mlx5_0", "mlx5_1"], "of three, those that channels go through"
    assert told["direct"] is True
    found = nccl.judge(seen(facts(INFINIBAND, fabric="InfiniBand"), facts(INFINIBAND, fabric="InfiniBand")))
    assert found.verdict is Verdict.PASS
    assert "mlx5_0, mlx5_1" in found.measured
    assert "with GPUDirect RDMA" in found.measured


def test_infiniband_without_gpudirect_passes_and_says_so() -> None:
    slow = INFINIBAND.replace("/GDRDMA", "")
    found = nccl.judge(seen(facts(slow, fabric="InfiniBand"), facts(INFINIBAND, fabric="InfiniBand")))
    assert found.verdict is Verdict.PASS
    assert "nvidia_peermem" in found.measured


def test_other_spellings_of_infiniband() -> None:
    assert nccl.parse(OLD_BUS_ID)["paths"] == {"NET/IB": 1}
    assert nccl.parse(EXTERNAL)["paths"] == {"NET/IBext_v8": 1}
    assert nccl.judge(seen(facts(EXTERNAL, fabric="InfiniBand"))).verdict is Verdict.PASS


def test_sockets() -> None:
    told = nccl.parse(SOCKETS)
    assert told["paths"] == {"NET/Socket": 2}
    assert told["interfaces"] == ["eth0", "eno2.100"]
    assert told["adapters"] == []
    assert told["variables"] == ["NCCL_IB_HCA"]
    assert told["no_adapter"] is True
    assert told["direct"] is False


@pytest.mark.parametrize(
    ("fabric", "verdict", "says"),
    [
        ("", Verdict.PASS, "over eno2.100, eth0; no faster network"),
        ("RoCE", Verdict.FAIL, "although the node has RoCE"),
    ],
)
def test_sockets_pass_only_where_there_is_nothing_faster(fabric, verdict, says) -> None:
    found = nccl.judge(seen(facts(SOCKETS, fabric=fabric), facts(SOCKETS, fabric=fabric)))
    assert found.verdict is verdict
    assert says in found.measured


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        ({}, "NCCL_IB_HCA names no adapter"),
        ({"verbs": False}, "bind /dev/infiniband"),
        ({"variables": ["NCCL_IB_DISABLE"]}, "unset NCCL_IB_DISABLE"),
        ({"variables": []}, "ibv_devinfo"),
        ({"fabric": "Slingshot"}, "aws-ofi"),
    ],
)
def test_the_fix_follows_from_what_was_seen(more, fix) -> None:
    found = nccl.judge(seen(facts(SOCKETS, fabric="InfiniBand") | more))
    assert found.verdict is Verdict.FAIL
    assert fix in found.fix


def test_the_ranks_that_fall_back_are_named() -> None:
    found = nccl.judge(seen(facts(INFINIBAND, fabric="InfiniBand"), facts(SOCKETS, fabric="InfiniBand")))
    assert (found.verdict, found.where) == (Verdict.FAIL, "node1 rank 1")


def test_loopback_between_nodes_fails() -> None:
    lost = SOCKETS.replace("[0]eth0:10.2.0.5<0> [1]eno2.100:10.3.0.5<0>", "[0]lo:127.0.0.1<0>")
    found = nccl.judge(seen(facts(lost), facts(lost)))
    assert found.verdict is Verdict.FAIL
    assert "NCCL_SOCKET_IFNAME" in found.fix


def test_libfabric() -> None:
    told = nccl.parse(LIBFABRIC)
    assert told["paths"] == {"NET/AWS Libfabric": 1}
    assert told["direct"] is True
    assert nccl.judge(seen(facts(LIBFABRIC, fabric="Slingshot"))).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("log", "nvlink", "verdict"),
    [
        (PEERS, True, Verdict.PASS),
        (SHARED, False, Verdict.PASS),
        (SHARED, True, Verdict.FAIL),
        (SOCKETS, False, Verdict.FAIL),
    ],
)
def test_inside_a_node(log, nvlink, verdict) -> None:
    assert nccl.judge(seen(facts(log, nodes=1, nvlink=nvlink))).verdict is verdict


def test_a_network_that_is_only_set_up_does_not_count() -> None:
    assert nccl.parse(SHARED)["paths"] == {"SHM": 1}


def test_a_log_without_channels_is_unknown() -> None:
    assert nccl.judge(seen(facts(""))).verdict is Verdict.UNKNOWN


def test_gloo_has_no_nccl() -> None:
    assert nccl.judge(seen({"backend": "gloo", "nodes": 2})).verdict is Verdict.NOT_APPLICABLE
