"""`hpc explain`: one object on stdout, or a table for people, or one line about what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpc_utils.cli import main

from . import torch_traces as made
from .torch_traces import event, kernel, write

KEYS = [
    "rank", "device", "span_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "memory_ns",
    "loader_wait_ns",
]  # fmt: skip


def explain(*arguments: str | Path):
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


@pytest.fixture
def two_ranks(tmp_path: Path) -> list[Path]:
    """Given in the wrong order; computed by hand for each: us 0 to 100, of which 40 to 50 idle, 45 to 60 in data."""
    files = []
    for rank in (1, 0):
        events = [
            kernel("ampere_sgemm_128x64_tn", 0, 30),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 20, 20, stream=9),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 50, 10, device=0, stream=7, bytes=4),
            kernel("triton_poi_fused_add_0", 60, 40),
            event("user_annotation", "data", 45, 15, pid=1, tid=1),
        ]
        head = {"distributedInfo": {"rank": rank, "world_size": 2}}
        files.append(write(tmp_path / f"{'ba'[rank]}.json.gz", made.trace(events, **head)))
    return files


def test_json_is_one_object_with_ranks_and_verdict(two_ranks: list[Path]) -> None:
    done = explain("--json", *two_ranks)
    assert done.exit_code == 0 and done.stderr == ""
    found = json.loads(done.stdout)
    assert list(found) == ["ranks", "verdict"]
    part = {"span_ns": 100_000, "busy_ns": 90_000, "compute_ns": 70_000, "communication_ns": 20_000}
    part |= {"exposed_communication_ns": 10_000, "memory_ns": 10_000, "loader_wait_ns": 5_000}
    assert found["ranks"] == [{"rank": rank, "device": 0} | part for rank in (0, 1)]
    assert {"bound", "confidence", "evidence", "advice"} <= found["verdict"].keys()


def test_people_get_tables_and_a_verdict(two_ranks: list[Path]) -> None:
    done = explain(*two_ranks)
    assert done.exit_code == 0, done.output
    row = done.stdout.splitlines()[1].split()
    assert row == ["0", "0", "0.1", "0.1", "90%", "0.1", "70%", "0.0", "20%", "0.0", "10%", "0.0", "10%", "0.0", "5%"]
    assert "elementwise 44%" in done.stdout and "confidence" in done.stdout


def test_without_a_gpu_its_fields_are_null(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", made.trace([event("user_annotation", "step", 0, 10)]))
    (rank,) = json.loads(explain("--json", path).stdout)["ranks"]
    assert rank == dict.fromkeys(KEYS) | {"rank": 0}
    assert "no work of a GPU was seen" in explain(path).stdout


def test_a_fault_is_one_line_and_nothing_on_stdout(tmp_path: Path, two_ranks: list[Path]) -> None:
    whole = two_ranks[0].read_bytes()
    (tmp_path / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    done = explain("--json", two_ranks[0], tmp_path / "cut.json.gz")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and "cut.json.gz" in done.stderr


def test_a_name_does_not_steer_the_terminal(tmp_path: Path) -> None:
    names = [{"id": 0, "name": "GPU\x1b]0;title\x07"}]
    events = [kernel("\x1b[2Jclear\u202e\x9b1m", 0, 5), kernel("k", 5, 5)]
    done = explain(write(tmp_path / "rank0.json", made.trace(events, deviceProperties=names)))
    assert done.exit_code == 0 and "?[2Jclear" in done.stdout and "GPU?]0;title?" in done.stdout
    assert all(line.isprintable() for line in done.stdout.splitlines())


def test_it_needs_neither_torch_nor_pandas(two_ranks: list[Path]) -> None:
    code = (
        "import sys; from hpc_utils.cli import main; main(sys.argv[1:], standalone_mode=False); "
        "print(*({'torch', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "explain", "--json", *map(str, two_ranks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (0, "")
