"""Ranks without torch leave records that stand beside the study's."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from companions.mpi import analysis as mpi
from companions.mpi import rank_records
from hpc_utils import cli, paths, records
from tests.analyze.runs import repeated

PROGRAM = """
import sys, time
from mpi4py import MPI
from companions.mpi.rank_records import RankRecords

with RankRecords("ours") as records:
    assert (records.rank, records.world_size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    for _ in range(2):
        with records.epoch() as counts:
            for _ in range(5):
                with counts.communication():
                    time.sleep(0.002)
                    MPI.COMM_WORLD.Barrier()
                counts.step(samples=64)
assert "torch" not in sys.modules
"""


def ranks(folder: Path, *steps: int) -> Path:
    """Files of ranks that took so many steps in 2 s, 1 s of them in communication."""
    folder.mkdir()
    for rank, count in enumerate(steps):
        with (folder / f"rank{rank}.csv").open("w") as file:
            lines = csv.writer(file)
            lines.writerow(rank_records.COLUMNS)
            lines.writerow((1, count, 64 * count, 2.0 + rank, 1.0, 0.5 if rank else 0.7))
    return folder


def test_ranks_under_mpiexec_record_themselves(mpiexec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = mpiexec(2, PROGRAM)
    assert outcome.returncode == 0, outcome.stderr
    table = pd.read_csv(rank_records.join(tmp_path / "ours"))
    assert (table.world_size == 2).all() and table.epoch.tolist() == [1, 2]
    assert (table.samples == 640).all() and (table.steps == 5).all()
    assert table.comm_seconds.between(0.002, 1).all() and table.utilisation.between(0, 1).all()


def test_torchrun_states_the_rank_that_srun_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}.items():
        monkeypatch.setenv(name, value)
    assert rank_records.rank_and_size() == (3, 4)


def test_a_start_on_fewer_ranks_leaves_no_rank_of_the_former(tmp_path: Path) -> None:
    with rank_records.RankRecords(ranks(tmp_path / "ours", 10, 10)) as alone, alone.epoch() as counts:
        counts.step(samples=64)
    assert pd.read_csv(rank_records.join(tmp_path / "ours")).world_size.tolist() == [1]


def test_a_file_of_another_language_needs_all_columns(tmp_path: Path) -> None:
    folder = ranks(tmp_path / "ours", 10)
    path = folder / "rank0.csv"
    path.write_text(path.read_text().replace(",", ", "))
    assert pd.read_csv(rank_records.join(folder)).samples.tolist() == [640]
    path.write_text(path.read_text().replace(", utilisation", ""))
    with pytest.raises(rank_records.RankRecordsError, match="utilisation"):
        rank_records.join(folder)


def test_an_import_stands_beside_runs_with_its_communication(tmp_path: Path, results: Path) -> None:
    pytest.importorskip("companions.imports", reason="the companion of `hpc import` was deleted")
    one, two = (rank_records.join(ranks(tmp_path / str(len(steps)), *steps)) for steps in ([10], [10, 10]))
    mapping = tmp_path / "ours.toml"
    page = (paths.root() / "docs/mpi.md").read_text()
    (example,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.S) if "[columns]" in block]
    mapping.write_text(example)
    command = ["import", str(one), str(two), "--map", str(mapping), "--as", "ours"]
    outcome = CliRunner().invoke(cli.main, command)
    assert outcome.exit_code == 0, outcome.output
    own = pd.DataFrame(repeated(2, 5.0, parallel="ddp", workload="mnist_cnn"))
    own = own.assign(
        framework="DDP", exposed_seconds=0.1, blocks=[{} for _ in own.index], cpu_seconds=0.8 * own.seconds
    )
    epochs = records.load(results / "foreign/ours").epochs.iloc[:0]
    table = mpi.frameworks(results, own, epochs).set_index("source")
    alone, theirs = (row for _, row in table.loc["imported: ours"].sort_values("world_size").iterrows())
    assert (alone.world_size, alone.global_batch, alone.throughput) == (1, 64, 320)
    assert (theirs.framework, theirs.world_size, theirs.global_batch, theirs.measured_by) == (
        "ours",
        2,
        128,
        "as imported",
    )
    assert theirs.throughput == pytest.approx(1280 / 3), "the longest rank's time"
    assert theirs.communication_share == pytest.approx(0.1 / 0.3) and theirs.utilisation == pytest.approx(0.6)
    ours = table.loc["measured here"]
    assert ours.communication_share == pytest.approx(0.1 / 0.5) and "DDP" in ours.measured_by
    assert ours.utilisation == pytest.approx(0.8 / own.threads_per_rank[0]), "processor time over the cores'"


@pytest.mark.parametrize("steps", [(), (10, 9), (0, 0)])
def test_ranks_that_contradict_each_other_are_refused(tmp_path: Path, steps: tuple[int, ...]) -> None:
    with pytest.raises(rank_records.RankRecordsError):
        rank_records.join(ranks(tmp_path / "ours", *steps))
    assert not (tmp_path / "ours.csv").exists()
