"""Interfaces and names of this machine, and what gloo is connected over."""

from __future__ import annotations

import socket
import subprocess
import sys

import psutil
import pytest

from hpc_utils.probe import gloo, interfaces, names
from hpc_utils.probe.check import Verdict

from .conftest import seen, tree

KNOWN = {"nodes": 2, "own": "ib0", "strangers": []}
UP = {"ranks": 2, "nodes": 2, "used": {"eth0": 10.0}, "chosen": None}


def ports(states: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    files = {}
    for name, (state, rate, layer) in states.items():
        folder = f"sys/class/infiniband/{name}/ports/1"
        files |= {f"{folder}/state": state, f"{folder}/rate": rate, f"{folder}/link_layer": layer}
    return files


def test_only_ports_that_are_up_count(tmp_path) -> None:
    machine = tree(
        tmp_path,
        ports(
            {
                "mlx5_0": ("4: ACTIVE\n", "400 Gb/sec (4X NDR)\n", "InfiniBand\n"),
                "mlx5_1": ("1: DOWN\n", "10 Gb/sec (4X SDR)\n", "InfiniBand\n"),
                "mlx5_2": ("4: ACTIVE\n", "100 Gb/sec (4X EDR)\n", "Ethernet\n"),
            }
        ),
    )
    assert interfaces.active_ports(machine) == {"mlx5_0": (400.0, "InfiniBand"), "mlx5_2": (100.0, "Ethernet")}
    assert interfaces.fabric(machine)["fabric"] == "InfiniBand and RoCE"
    assert interfaces.fabric(machine)["verbs"] is False
    tree(machine, {"dev/infiniband/uverbs0": ""})
    assert interfaces.fabric(machine)["verbs"] is True


def test_slingshot_is_a_fabric(tmp_path) -> None:
    assert interfaces.fabric(tree(tmp_path, {"sys/class/cxi/cxi0/device/uevent": ""}))["fabric"] == "Slingshot"


def test_a_machine_without_any_has_no_fabric(tmp_path) -> None:
    assert interfaces.fabric(tmp_path)["fabric"] == ""


@pytest.mark.parametrize(("address", "loop"), [("127.0.0.1", True), ("::ffff:127.0.0.1", True), ("127.0.1.1", True)])
def test_addresses_of_this_machine(address, loop) -> None:
    assert interfaces.loopback([interfaces.interface_of(address)]) is loop


def test_an_address_of_an_interface_and_one_of_nobody() -> None:
    assert interfaces.interface_of("192.0.2.1") is None  # RFC 5737: for documentation
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                assert interfaces.interface_of(entry.address) == name


def test_a_name_that_means_nothing() -> None:
    assert interfaces.resolve("no-such-host.invalid") == []  # RFC 2606
    assert interfaces.of_host("no-such-host.invalid") == interfaces.UNRESOLVED
    assert interfaces.loopback([interfaces.of_host("localhost")])


def test_a_connection_is_found_on_its_interface_unless_it_is_the_launchers(monkeypatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "1")
    others = interfaces.carrying()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]):
        assert "lo" in interfaces.carrying()
        monkeypatch.setenv("MASTER_PORT", str(server.getsockname()[1]))
        assert interfaces.carrying() == others


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        ({}, Verdict.PASS, "own name on ib0, all nodes known"),
        ({"nodes": 1, "own": "lo"}, Verdict.PASS, "own name on lo"),
        ({"own": ""}, Verdict.FAIL, "does not resolve"),
        ({"nodes": 1, "own": ""}, Verdict.FAIL, "does not resolve"),
        ({"own": None}, Verdict.FAIL, "an address that this machine does not have"),
        ({"own": "lo"}, Verdict.FAIL, "loopback"),
        ({"strangers": ["node7"]}, Verdict.FAIL, "node7"),
    ],
)
def test_names(facts, verdict, says) -> None:
    found = names.judge(KNOWN | facts)
    assert found.verdict is verdict
    assert says in found.measured
    assert bool(found.fix) is (verdict is Verdict.FAIL)


def test_names_can_be_looked_at_before_there_is_a_launcher() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "hpc_utils.probe.names", "no-such-host.invalid"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no-such-host.invalid" in done.stderr
    assert " torch" not in done.stderr


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"used": {"lo": None}}, Verdict.FAIL),
        ({"used": {"lo": None}, "nodes": 1}, Verdict.PASS),
        ({"used": {"lo": None, "eth0": 10.0}}, Verdict.PASS),
        ({"used": {}}, Verdict.NOT_APPLICABLE),
        ({"ranks": 1}, Verdict.NOT_APPLICABLE),
    ],
)
def test_the_interface_between_nodes_is_not_loopback(facts, verdict) -> None:
    found = gloo.judge(seen(UP | facts, UP | facts))
    assert found.verdict is verdict
    assert ("GLOO_SOCKET_IFNAME" in found.fix) is (verdict is Verdict.FAIL)


def test_the_interface_its_speed_and_who_chose_it_are_told() -> None:
    found = gloo.judge(seen(UP | {"chosen": "eth0"}, UP))
    assert found.measured == "gloo over eth0 (10 Gbit/s), chosen by GLOO_SOCKET_IFNAME=eth0"
    assert gloo.judge(seen(UP, UP | {"used": {"lo": None}})).where == "node1 rank 1"
