"""Interfaces and names of this machine, and what gloo is connected over."""

from __future__ import annotations

import socket

import psutil
import pytest

from hpc_utils.doctor import network
from hpc_utils.doctor.check import Verdict
from tests.support import write_files

from .conftest import seen


def test_only_ports_that_are_up_count(tmp_path) -> None:
    assert network.fabric(tmp_path)["fabric"] == ""
    for name, state, rate, layer in (
        ("mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand"),
        ("mlx5_1", "1: DOWN", "10 Gb/sec (4X SDR)", "InfiniBand"),
        ("mlx5_2", "4: ACTIVE", "100 Gb/sec (4X EDR)", "Ethernet"),
    ):
        port = f"sys/class/infiniband/{name}/ports/1"
        write_files(tmp_path, {f"{port}/state": state, f"{port}/rate": rate, f"{port}/link_layer": layer})
    assert network.active_ports(tmp_path) == {"mlx5_0": (400.0, "InfiniBand"), "mlx5_2": (100.0, "Ethernet")}
    assert network.fabric(tmp_path)["fabric"] == "InfiniBand and RoCE"
    write_files(tmp_path, {"sys/class/cxi/cxi0/device/uevent": ""})
    assert network.fabric(tmp_path)["fabric"] == "Slingshot"


def test_addresses_of_this_and_of_another_machine() -> None:
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "127.0.1.1"):
        assert network.loopback([network.interface_of(address)])
    assert network.interface_of("192.0.2.1") is None  # RFC 5737: for documentation
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                assert network.interface_of(entry.address) == name


def test_interfaces_of_host_names() -> None:
    assert network.interface_of_host("no-such-host.invalid") == network.UNRESOLVED  # RFC 2606
    assert network.loopback([network.interface_of_host("localhost")])


def test_a_connection_is_found_on_its_interface_unless_it_is_the_launchers(monkeypatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    others = network.connected()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]):
        assert "lo" in network.connected()
        monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        assert network.connected() == others


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"nodes": 1, "own": "lo"}, Verdict.PASS),
        ({"own": network.UNRESOLVED}, Verdict.FAIL),
        ({"nodes": 1, "own": network.UNRESOLVED}, Verdict.FAIL),
        ({"own": None}, Verdict.FAIL),  # an address of another machine
        ({"own": "lo"}, Verdict.FAIL),
        ({"unknown": ["node7"]}, Verdict.FAIL),
    ],
)
def test_names(facts, verdict) -> None:
    found = network.judge_names({"nodes": 2, "own": "ib0", "unknown": []} | facts)
    assert found.verdict is verdict
    assert bool(found.fix) is (verdict is Verdict.FAIL)


UP = {"nodes": 2, "used": {"eth0": 10.0}}


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"used": {"lo": None}}, Verdict.FAIL),
        ({"used": {"lo": None}, "nodes": 1}, Verdict.PASS),
        ({"used": {"lo": None, "eth0": 10.0}}, Verdict.PASS),
        ({"used": {}}, Verdict.NOT_APPLICABLE),
    ],
)
def test_the_interface_between_nodes_is_not_loopback(facts, verdict) -> None:
    found = network.judge_interface(seen(UP | facts, UP | facts))
    assert found.verdict is verdict
    assert ("GLOO_SOCKET_IFNAME" in found.fix) is (verdict is Verdict.FAIL)


def test_a_rank_on_loopback_is_named() -> None:
    assert network.judge_interface(seen(UP, UP | {"used": {"lo": None}})).where == "node1 rank 1"
