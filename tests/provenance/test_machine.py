from __future__ import annotations

import json
import re
from dataclasses import asdict, astuple, replace
from pathlib import Path

import pytest

from hpc_utils.provenance import Hardware, HardwareId, fingerprint, hardware, hardware_id
from hpc_utils.provenance.cpu import Cpu
from hpc_utils.provenance.gpu import Gpu
from hpc_utils.provenance.machine import Interface, Port, infiniband, network

NODE = Hardware(
    Cpu("AMD EPYC 7763", cores=64, usable=128, logical=128),
    memory_bytes=2**38,
    gpus=[Gpu(name="NVIDIA A100-SXM4-40GB", uuid="GPU-1")] * 4,
)


def test_this_machine() -> None:
    found = hardware()
    text = json.dumps(asdict(found))
    assert found.cpu.model and found.cpu.cores >= 1 and found.memory_bytes > 2**28
    assert not re.search(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", text)
    assert hardware() is found


def test_the_fingerprint_is_eight_digits_of_what_compares() -> None:
    name = fingerprint(NODE)
    assert re.fullmatch(r"[0-9a-f]{8}", name)
    assert fingerprint(replace(NODE, memory_bytes=1, network=[], nvlink="x")) == name
    assert fingerprint(replace(NODE, gpus=[replace(NODE.gpus[0], uuid="GPU-2")] * 4)) == name
    assert fingerprint(replace(NODE, gpus=NODE.gpus[:1])) != name
    assert fingerprint(replace(NODE, gpus=[Gpu(name="NVIDIA H100")] * 4)) != name
    for other in ({"usable": 16}, {"model": "other"}, {"flags": ["avx2"]}):
        assert fingerprint(replace(NODE, cpu=replace(NODE.cpu, **other))) != name


def test_the_fingerprints_of_committed_runs_stay() -> None:
    """Of a recorded machine, computed by an earlier version."""
    flags = "avx avx2 avx512_bf16 avx512_vnni avx512bw avx512f f16c fma"
    recorded = Cpu("AMD EPYC", cores=2, flags=flags.split(), usable=2)
    assert fingerprint(Hardware(recorded)) == "300bbc26"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("aurora", "aurora"), ("My Cluster/../x; rm", "My-Cluster-..-x-rm"), ("../..", None), ("", None)],
)
def test_a_clusters_name_replaces_it(name: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_CLUSTER", name)
    assert hardware_id() == (expected or fingerprint(hardware()))


@pytest.mark.parametrize(
    ("text", "parts", "gbit"),
    [
        ("rehearsal-cpu-0123abcd-300mbit", ("rehearsal-cpu", "0123abcd", "300mbit"), 0.3),
        ("rehearsal-cpu-0123abcd-2.5kbit", ("rehearsal-cpu", "0123abcd", "2.5kbit"), 2.5e-6),
        ("lumi-g-gpu", ("lumi-g-gpu", "", ""), None),
        ("0123abcd", ("", "0123abcd", ""), None),
    ],
)
def test_the_parts_of_a_hardware_id(text: str, parts: tuple[str, str, str], gbit: float | None) -> None:
    found = HardwareId.parse(text)
    assert astuple(found) == parts and str(found) == text
    assert found.link_gbit == (None if gbit is None else pytest.approx(gbit))


def test_physical_interfaces_only(tmp_path: Path) -> None:
    for name, speed, driver in (
        ("veth12", "10000", ""),
        ("hsn0", "200000", "device/cxi_core"),
        ("eth0", "-1", "device/virtio_net"),
        ("enx001122334455", "1000", "device"),
    ):
        folder = tmp_path / "sys/class/net" / name
        (folder / driver).mkdir(parents=True)
        (folder / "speed").write_text(f"{speed}\n")
        if driver.startswith("device/"):
            (folder / "device/driver").symlink_to(folder / driver)
    assert network(tmp_path) == [
        Interface("enx", 1000, None),
        Interface("eth0", None, "virtio_net"),
        Interface("hsn0", 200_000, "cxi_core"),
    ]


def test_infiniband_ports(tmp_path: Path) -> None:
    assert infiniband(tmp_path) is network(tmp_path) is None, "a system without sysfs"
    (tmp_path / "sys/class").mkdir(parents=True)
    assert infiniband(tmp_path) == []
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    assert infiniband(tmp_path) == [Port("mlx5_0", 1, "200 Gb/sec (4X HDR)", "InfiniBand")]
