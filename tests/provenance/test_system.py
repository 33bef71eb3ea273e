from __future__ import annotations

import copy
from pathlib import Path

import pytest

from hpc_utils.provenance import collect, digest, system_markdown, write_system

GPU = {
    "index": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "memory_bytes": 40 * 2**30,
    "driver": "535.129.03",
    "pcie_generation": 4,
    "pcie_width": 16,
}
NODE = {
    "digest": "abc" * 20,
    "digest_rule": digest.RULE,
    "commit": "f" * 40,
    "dirty": False,
    "collected_at": "2025-03-04T10:00:00+00:00",
    "versions": {"python": "3.12.1", "torch": "2.6.0", "cuda": "12.4"},
    "hardware_id": "aurora",
    "hardware": {
        "cpu": {
            "model": "AMD EPYC 7763",
            "sockets": 2,
            "cores": 128,
            "logical": 128,
            "usable": 32,
            "flags": ["avx2"],
        },
        "memory_bytes": 2**39,
        "gpus": [GPU | {"uuid": "GPU-0"}, GPU | {"uuid": "GPU-1"}],
        "nvlink": "     GPU0 GPU1\nGPU0  X   NV12",
        "network": [{"name": "eth0", "driver": "ice", "speed_mbps": 25000}],
        "infiniband": [{"device": "mlx5_0", "port": 1, "rate": "200 Gb/sec (4X HDR)", "link_layer": "InfiniBand"}],
        "faults": [],
    },
    "job": {
        "scheduler": "slurm",
        "id": "42",
        "name": "strong|x",
        "partition": "gpu",
        "nodes": 1,
        "nodelist": "gpu01",
        "restart_count": 0,
    },
    "host": {"hostname": "gpu01", "os": "Rocky Linux 9.4", "kernel": "5.14"},
    "environment": {"OMP_NUM_THREADS": "8"},
    "faults": [],
}
LAPTOP = {
    "digest": "d" * 64,
    "digest_rule": digest.RULE,
    "commit": None,
    "dirty": None,
    "versions": {"python": "3.11.7", "torch": "2.6.0", "cuda": None},
    "hardware": {"cpu": {"model": "Apple M2", "cores": 8}, "gpus": [], "network": None, "faults": ["x | y"]},
    "job": {"scheduler": None},
}


def test_nodes_of_a_kind_share_a_section() -> None:
    other = copy.deepcopy(NODE)
    other["host"]["hostname"] = "gpu02"
    other["hardware"]["gpus"] = [GPU | {"uuid": "GPU-7"}]
    other["hardware"]["cpu"]["usable"] = 16
    other["job"] |= {"id": "43", "array_job_id": "40", "array_task_id": "3"}
    other["collected_at"] = "2025-03-05T10:00:00+00:00"
    text = system_markdown([NODE, other, NODE])
    gpu = "NVIDIA A100-SXM4-40GB (40 GiB, driver 535.129.03, PCIe gen 4 x16)"
    assert text.count("\n## ") == 1 and "GPU-7" not in text
    for line in (
        "## aurora: AMD EPYC 7763, NVIDIA A100-SXM4-40GB",
        "3 runs on 2 hosts, 2025-03-04 to 2025-03-05.",
        "| logical CPUs usable by a run | 16, 32 |",
        "| memory | 512 GiB |",
        f"| GPUs | 1 x {gpu}, 2 x {gpu} |",
        "GPU0  X   NV12",
        "| InfiniBand | mlx5_0 port 1 (InfiniBand, 200 Gb/sec (4X HDR)) |",
        "| network | eth0 (ice, 25 Gb/s) |",
        f"| `{'f' * 40}` | clean | `{'abc' * 20}` | 3 |",
        "| slurm 40, 42 | strong\\|x | gpu | 1 | gpu01 | 0 | 3 |",
        "| `OMP_NUM_THREADS` | 8 |",
    ):
        assert line in text
    assert f"`{'abc' * 20}` (former rule)" in system_markdown([{**NODE, "digest_rule": None}])


def test_the_tasks_of_an_array_are_one_entry() -> None:
    def task(array: str | None, number: int) -> dict:
        ids = {"id": str(100 + number), "array_job_id": array, "array_task_id": str(number)}
        return NODE | {"job": NODE["job"] | ids}

    tasks = [task("28", 11), task("28", 3), task("9", 0), task(None, 7)]
    assert "| slurm 9, 28, 107 | strong\\|x | gpu | 1 | gpu01 | 0 | 4 |" in system_markdown(tasks)


def test_absence_is_stated() -> None:
    text = system_markdown([LAPTOP])
    for line in (
        "| GPUs | none |",
        "1 run on hosts not known.",
        f"| not known (copied tree) |  | `{'d' * 64}` | 1 |",
        "| cuda | none |",
        "| network | not known |",
        "1 run outside a scheduler.",
    ):
        assert line in text


def test_order_does_not_matter_and_kinds_are_apart() -> None:
    dirty = NODE | {"dirty": True}
    assert "No run has recorded" in system_markdown([])
    text = system_markdown([NODE, LAPTOP, dirty])
    assert text == system_markdown([dirty, NODE, LAPTOP])
    assert text.count("\n## ") == 2
    assert "with uncommitted changes" in text
    assert text.endswith("\n") and not text.endswith("\n\n")


@pytest.mark.parametrize("record", [{}, {"hardware": None, "job": None, "versions": None, "host": None}])
def test_records_with_few_facts_are_shown(record: dict) -> None:
    text = system_markdown([record])
    assert "CPU not known" in text and "| GPUs | not recorded |" in text and "not known (copied tree)" in text


def test_a_cell_stays_readable() -> None:
    environments = [{"OMP_NUM_THREADS": str(count)} for count in range(20)]
    records = [NODE | {"environment": environment} for environment in (*environments, {})]
    assert "0, 1, 2, 3, 4, 5, 6, 7, unset and 12 more" in system_markdown(records)


def test_this_machine_writes_a_system_file(tmp_path: Path) -> None:
    path = tmp_path / "results/SYSTEM.md"
    write_system([collect()], path)
    assert path.read_text().startswith("# System\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["SYSTEM.md"]
