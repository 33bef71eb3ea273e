"""What `make docs` writes: what all committed sets were measured on, current and true to their records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs import renew
from hpc_utils import paths
from tests.support import copy_runs

CORES = paths.reference() / "epyc-2core"
ROOT = paths.root()


def test_the_committed_pages_are_what_the_committed_runs_say() -> None:
    pages = renew.pages(sorted(paths.reference().glob("*/")))
    assert {path.parent for path in pages} == {paths.root(), paths.root() / "docs", *paths.reference().iterdir()}
    for path, text in (pages | renew.verdicts()).items():
        assert path.read_text() == text, f"{path}: make docs"


def change(run: Path, **parts: dict | str) -> None:
    path = run / "provenance.json"
    record = json.loads(path.read_text())
    for name, part in parts.items():
        record[name] = record[name] | part if isinstance(part, dict) else part
    path.write_text(json.dumps(record))


def test_a_set_has_a_column_and_every_difference_within_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    first, second = copy_runs(CORES, mine, limit=2)
    gpu = {"name": "NVIDIA H100", "memory_bytes": 2**36}
    port = {"device": "mlx5_0", "port": 1, "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
    change(first, host={"libc": "glibc 2.36", "container": None}, versions={"torch": "2.9.0", "slurm": "23.11"})
    change(first, hardware={"gpus": [gpu] * 4, "infiniband": [port]})
    job = {"scheduler": "slurm", "id": "12"}
    change(second, commit="f" * 40, dirty=True, host={"libc": None, "container": "a.sif"}, job=job)
    text = list(renew.pages([CORES, mine]).values())[-1]

    def row(name: str) -> list[str]:
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        return [cell.strip() for cell in line.split("|")[2:-1]]

    assert row("runs") == ["24", "2"]
    assert row("torch") == ["2.13.0+cpu", "2.9.0, 2.13.0+cpu"], "in their numbers' order"
    assert row("C library") == ["not recorded", "glibc 2.36, not known"]
    assert row("container") == ["not recorded", "a.sif, none"]
    assert row("scheduler")[1] == "none, slurm"
    assert row("commit")[1] == "`b2de18d7979b`, `ffffffffffff` (modified)"
    assert row("measured")[1] == "Slurm jobs 12, 2026-11-21; 1 run directly on the machine"
    assert row("GPUs")[1].startswith("4 x NVIDIA H100 (64 GiB")
    assert "mlx5_0 port 1 (InfiniBand" in row("InfiniBand")[1]


@pytest.mark.parametrize("walk", re.findall(r"(?ms)^## One .*?(?=^## )", (ROOT / "docs/architecture.md").read_text()))
def test_a_walk_through_the_code_names_as_many_files_as_its_heading_says(walk: str) -> None:
    """Without those that only check the number, and the other readers of profiles."""
    steps = "\n".join(re.findall(r"(?ms)^\d\. .*?(?=^\d\. |^\n|\Z)", walk))
    named = set(re.findall(r"`([\w/]+\.py)`", steps)) - {"nsys.py", "ncu.py"}
    assert len(named) == int(re.match(r"## .*: (\d+) files", walk)[1])
    assert all(any((ROOT / "hpc_utils").rglob(name)) for name in named)
