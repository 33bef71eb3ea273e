"""Records of a program under MPI that needs no torch: a CSV file for each rank, joined into one for `hpc import`.

    with RankRecords("fp32") as records:             # rank and size as mpiexec or Slurm states them
        for epoch in range(3):
            with records.epoch() as counts:
                for batch in batches:
                    ...
                    with counts.communication():
                        comm.Allreduce(MPI.IN_PLACE, gradients)
                    counts.step(samples=len(batch))

    mpiexec -n 2 python train.py
    python -m companions.mpi.rank_records fp32       # writes fp32.csv

A program in another language writes the files itself: `fp32/rank0.csv` and so on, with the columns `COLUMNS`.
"""

from __future__ import annotations

import contextlib
import csv
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

# Of each rank and epoch. comm_seconds: in communication, over the epoch; utilisation: a share, empty if unknown.
COLUMNS = ("epoch", "steps", "samples", "seconds", "comm_seconds", "utilisation")
# Rank and size under torchrun, Open MPI, MPICH and Intel MPI, srun. torchrun is first: srun may have started it.
VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


class RankRecordsError(ValueError):
    """The files of the ranks contradict each other."""


def rank_and_size() -> tuple[int, int]:
    """This process among all, as its launcher states it; (0, 1) without one."""
    for rank, size in VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


class Counts:
    """An epoch of one rank so far."""

    def __init__(self) -> None:
        self.steps = 0
        self.samples = 0
        self.comm_seconds = 0.0

    def step(self, samples: int) -> None:
        """Count a step on this rank's `samples`."""
        self.steps += 1
        self.samples += samples

    @contextlib.contextmanager
    def communication(self) -> Iterator[None]:
        """Time what is inside as communication."""
        begun = time.perf_counter()
        yield
        self.comm_seconds += time.perf_counter() - begun


class RankRecords:
    """Writes `<folder>/rank<rank>.csv`, a line after each epoch. Utilisation is the processor time over that of the rank's cores."""

    def __init__(self, folder: str | Path) -> None:
        self.rank, self.world_size = rank_and_size()
        self._path = Path(folder) / f"rank{self.rank}.csv"
        self._epochs = 0

    def __enter__(self) -> RankRecords:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            for path in self._path.parent.glob("rank*.csv"):  # of an earlier start on more ranks
                if int(path.stem.removeprefix("rank")) >= self.world_size:
                    path.unlink()
        self._file = self._path.open("w", newline="")
        self._lines = csv.writer(self._file, lineterminator="\n")
        self._lines.writerow(COLUMNS)
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @contextlib.contextmanager
    def epoch(self) -> Iterator[Counts]:
        """Time and count the training part of an epoch."""
        counts = Counts()
        begun, used = time.perf_counter(), time.process_time()
        yield counts
        seconds = time.perf_counter() - begun
        utilisation = (time.process_time() - used) / seconds / len(os.sched_getaffinity(0))
        self._epochs += 1
        self._lines.writerow((self._epochs, counts.steps, counts.samples, seconds, counts.comm_seconds, utilisation))
        self._file.flush()


def join(folder: Path) -> Path:
    """Write `<folder>.csv`: for each epoch the samples of all ranks and of a step (a last, smaller one aside), the longest rank's time,
    and means over ranks of the communication of a step and of the utilisation.

    Raises:
        OSError, ValueError: a file cannot be read.
        RankRecordsError: a rank or a column is missing, an epoch has no step, or ranks count other epochs or steps.
    """
    files = sorted(folder.glob("rank*.csv"))
    if not files or {path.stem for path in files} != {f"rank{rank}" for rank in range(len(files))}:
        raise RankRecordsError(f"{folder}: expected rank0.csv, rank1.csv and so on, found {len(files)} files")
    epochs = pd.concat(map(_read, files)).groupby("epoch")
    if (epochs.size() != len(files)).any() or (epochs.steps.nunique() > 1).any():
        raise RankRecordsError(f"{folder}: the ranks count other epochs or steps")
    if not epochs.steps.min().all():
        raise RankRecordsError(f"{folder}: an epoch without a step: call `counts.step` in each")
    steps, samples = epochs.steps.first(), epochs.samples.sum()
    means = epochs[["comm_seconds", "utilisation"]].mean()
    totals = {"steps": steps, "samples": samples, "global_batch": np.ceil(samples / steps).astype(int)}
    joined = pd.DataFrame(totals | {"seconds": epochs.seconds.max(), "world_size": len(files)})
    joined["comm_seconds"] = means.comm_seconds / steps
    joined["utilisation"] = means.utilisation
    path = folder.with_suffix(".csv")
    joined.to_csv(path)
    return path


def _read(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, skipinitialspace=True)
    if missing := [column for column in COLUMNS if column not in table]:
        raise RankRecordsError(f"{path}: no column {', '.join(missing)}; expected {','.join(COLUMNS)}")
    return table


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            print(join(Path(name)))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
