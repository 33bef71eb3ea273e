from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hpc_utils.provenance import hardware, hardware_id, link_gbit_in, links_in
from hpc_utils.provenance.machine import infiniband, network

NODE = {
    "cpu": {"model": "AMD EPYC 7763", "cores": 64, "usable": 128, "logical": 128},
    "gpus": [{"name": "NVIDIA A100-SXM4-40GB", "uuid": "GPU-1"}] * 4,
    "memory_bytes": 2**38,
}


def test_this_machine() -> None:
    found = hardware()
    json.dumps(found)
    assert found["cpu"]["model"] and found["cpu"]["cores"] >= 1 and found["memory_bytes"] > 2**28
    assert not re.search(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", json.dumps(found))


def test_it_is_seen_once_and_nobody_can_spoil_it() -> None:
    first = hardware()
    first["cpu"]["model"] = "changed by the caller"
    assert hardware()["cpu"]["model"] != "changed by the caller"


def test_the_id_is_eight_digits_of_what_compares() -> None:
    name = hardware_id(NODE)
    assert re.fullmatch(r"[0-9a-f]{8}", name)
    assert hardware_id({**NODE, "memory_bytes": 1, "network": [], "nvlink": "x"}) == name
    assert hardware_id({**NODE, "gpus": [{"name": "NVIDIA A100-SXM4-40GB", "uuid": "GPU-2"}] * 4}) == name
    assert hardware_id({**NODE, "gpus": NODE["gpus"][:1]}) != name
    assert hardware_id({**NODE, "gpus": [{"name": "NVIDIA H100"}] * 4}) != name
    assert hardware_id({**NODE, "cpu": NODE["cpu"] | {"usable": 16}}) != name
    assert hardware_id({**NODE, "cpu": NODE["cpu"] | {"model": "other"}}) != name
    assert re.fullmatch(r"[0-9a-f]{8}", hardware_id())
    assert re.fullmatch(r"[0-9a-f]{8}", hardware_id({}))


@pytest.mark.parametrize(
    ("name", "told"),
    [("aurora", "aurora"), ("My Cluster/../x; rm", "My-Cluster-..-x-rm"), ("../..", None), ("  ", None), ("", None)],
)
def test_a_clusters_name_replaces_it(name: str, told: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = hardware_id(NODE)
    monkeypatch.setenv("HPC_CLUSTER", name)
    assert hardware_id(NODE) == (told or digits)


@pytest.mark.parametrize(
    ("hardware", "links", "gbit"),
    [
        ("rehearsal-cpu-0123abcd", "", None),
        ("rehearsal-cpu-0123abcd-1gbit", "1gbit", 1.0),
        ("rehearsal-cpu-0123abcd-300mbit", "300mbit", 0.3),
        ("rehearsal-cpu-0123abcd-2.5kbit", "2.5kbit", 2.5e-6),
        ("lumi-g-gpu", "", None),
        ("0123abcd", "", None),
    ],
)
def test_links_limited_by_hand_are_read_from_the_id(hardware: str, links: str, gbit: float | None) -> None:
    assert links_in(hardware) == links
    assert link_gbit_in(hardware) == (None if gbit is None else pytest.approx(gbit))


def interface(root: Path, name: str, speed: str, driver: str | None, physical: bool = True) -> None:
    folder = root / "sys/class/net" / name
    folder.mkdir(parents=True)
    (folder / "speed").write_text(speed)
    (folder / "address").write_text("00:11:22:33:44:55")
    if physical:
        (folder / "device").mkdir()
    if driver:
        (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "device/driver").symlink_to(root / "drivers" / driver)


def test_physical_interfaces_only(tmp_path: Path) -> None:
    interface(tmp_path, "lo", "", None, physical=False)
    interface(tmp_path, "veth12", "10000\n", None, physical=False)
    interface(tmp_path, "hsn0", "200000\n", "cxi_core")
    interface(tmp_path, "eth0", "-1\n", "virtio_net")
    interface(tmp_path, "enx001122334455", "1000\n", None)
    assert network(tmp_path) == [
        {"name": "enx", "speed_mbps": 1000, "driver": None},
        {"name": "eth0", "speed_mbps": None, "driver": "virtio_net"},
        {"name": "hsn0", "speed_mbps": 200_000, "driver": "cxi_core"},
    ]


def test_infiniband_ports(tmp_path: Path) -> None:
    (tmp_path / "sys/class").mkdir(parents=True)
    assert infiniband(tmp_path) == []
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    assert infiniband(tmp_path) == [
        {"device": "mlx5_0", "port": 1, "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}
    ]


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert network(tmp_path) is None
    assert infiniband(tmp_path) is None
