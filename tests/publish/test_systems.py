"""What all committed sets were measured on: current, and true to their records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_utils import paths, records
from hpc_utils.publish import systems
from tests.support import copy_runs

CORES = paths.reference() / "epyc-2core"


def test_the_committed_pages_are_what_the_committed_runs_say() -> None:
    pages = systems.pages()
    assert {path.parent for path in pages} == {paths.root(), *(path for path in paths.reference().iterdir())}
    for path, text in pages.items():
        assert path.read_text() == text, f"{path}: make docs"


def row(text: str, question: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {question} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


@pytest.fixture
def some(tmp_path: Path) -> Path:
    """Two of a set's runs, as a set of their own."""
    folder = tmp_path / "mine"
    copy_runs(CORES, folder, limit=2)
    return folder


def overview(*sets: Path) -> str:
    return list(systems.pages(sets).values())[-1]


def change(run: Path, **parts: dict) -> None:
    path = run / "provenance.json"
    told = json.loads(path.read_text())
    for name, part in parts.items():
        told[name] = told[name] | part if isinstance(part, dict) else part
    path.write_text(json.dumps(told))


def test_a_column_a_set_and_every_difference_within_it(some: Path) -> None:
    first, second = sorted((some / "runs").iterdir())
    change(first, host={"libc": "glibc 2.36", "container": None}, versions={"torch": "2.9.0", "slurm": "23.11"})
    job = {"scheduler": "slurm", "id": "12", "array_job_id": "10", "array_task_id": "0"}
    change(second, commit="f" * 40, dirty=True, host={"libc": None, "container": "a.sif"}, job=job)
    text = overview(CORES, some)
    assert f"[`mine`]({some}/SYSTEM.md)" in text and "(results/reference/epyc-2core/SYSTEM.md)" in text
    assert row(text, "runs") == ["24", "2"]
    assert row(text, "torch") == ["2.13.0+cpu", "2.9.0, 2.13.0+cpu"], "in their numbers' order"
    assert row(text, "C library") == ["not recorded", "glibc 2.36, not known"]
    assert row(text, "container") == ["not recorded", "a.sif, none"]
    assert row(text, "slurm") == ["not recorded", "23.11"]
    assert row(text, "jobs") == ["–", "1: 10"] and row(text, "scheduler")[1] == "none, slurm"
    assert row(text, "commit")[1] == "`b2de18d7979b`, `ffffffffffff` (modified)"
    assert row(text, "nodes x ranks")[0] == "1x1, 1x2" and row(text, "links between nodes")[0] == "–"
    assert row(text, "energy") == ["not counted"] * 2 and "Energy was counted in no run" in text


def test_a_gpu_cluster_is_reported_as_such(some: Path) -> None:
    for run in (some / "runs").iterdir():
        gpu = {"name": "NVIDIA H100", "memory_bytes": 2**36}
        port = {"device": "mlx5_0", "port": 1, "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
        told = json.loads((run / "provenance.json").read_text())["hardware"]
        change(
            run,
            hardware=told | {"gpus": [gpu] * 4, "infiniband": [port]},
            versions={"cuda": "12.4", "nccl": "2.21.5"},
        )
        made = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(made | {"device": "cuda", "nodes": 2}))
    text = overview(some)
    assert row(text, "GPUs")[0].startswith("4 x NVIDIA H100 (64 GiB") and row(text, "cuda") == ["12.4"]
    assert row(text, "InfiniBand") == ["mlx5_0 port 1 (InfiniBand, 400 Gb/sec (4X NDR))"]
    assert row(text, "devices of a run") == ["GPU"] and row(text, "links between nodes") == ["not limited"]
    assert row(text, "compute")[0].startswith("0 core-hours, 0.0")


def test_links_and_shared_nodes_are_reported_of_the_rehearsal() -> None:
    text = overview(paths.reference() / "rehearsal")
    assert row(text, "links between nodes") == ["0.3 Gbit/s, 1 Gbit/s, 3 Gbit/s, 10 Gbit/s, not limited"]
    assert row(text, "devices of a run") == ["CPU of 0.14 core"]
    assert row(text, "nodes x ranks") == ["1x1, 2x1, 4x1, 8x1, 12x1"]
    assert row(text, "studies") == ["`links`, `optimized`, `strong`, `weak`"]
    assert "Nodes of a rehearsal cluster share one machine: their hours are not its." in text


def test_an_empty_clone_has_a_page_too(tmp_path: Path) -> None:
    assert "No result set is committed." in systems.overview({}, {})
    empty = tmp_path / "none"
    (empty / "runs").mkdir(parents=True)
    assert records.load(empty).runs.empty and row(overview(empty), "runs") == ["0"]


def test_the_readmes_table_has_the_fastest_of_one_device_and_how_soon_cifar10_is_learnt() -> None:
    found = records.load(CORES)
    (cells,) = [line.split(" | ") for line in systems.fastest({CORES: found}).splitlines()[2:]]
    alone = found.runs[found.runs.world_size == 1]
    medians = alone.groupby(
        ["parallel", "precision", "global_batch", "steps_per_epoch"], dropna=False
    ).throughput.median()
    assert cells[4].startswith(f"{medians.max():,.0f} (") and cells[5:] == ["3", "–", "– |"]

    found.runs["dataset"] = "cifar10"
    found.epochs["test_accuracy"] = found.epochs.epoch.map(lambda epoch: 0.95 if epoch else 0.5)
    (cells,) = [line.split(" | ") for line in systems.fastest({CORES: found}).splitlines()[2:]]
    epochs = found.epochs[found.epochs.run_id.isin(alone.run_id)]
    until = epochs[epochs.epoch <= 1].groupby("run_id").seconds.sum()
    assert until.min() <= float(cells[6].split()[0]) <= until.max() and cells[7] == "– |"
