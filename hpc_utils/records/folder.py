"""A run's folder, `results/runs/<run id>/`: the only place that a run writes to.

request.json     the request to the launcher
run.json         the measurement: id, parameters, layout, device
provenance.json  code digest, commit, versions, hardware, job
epochs.csv       one row per epoch
rounds.csv       one row per turn, if it took turns with other runs
steps.csv.gz     one row per step and rank
ranks.csv        one row per rank
status.json      running | complete | stopped | failed, and the reason; digests of the tables of a complete run
progress.json    the progress (updated while it runs)
notebook.ipynb   the executed notebook of rank 0
weights.pt       the trained weights, if requested
logs/            output of each rank, the launcher and a profiler
profile/         profiles of a few steps, a file a rank, and exports of them
sacct.csv        Slurm's accounting of the job, once its report was written
monitor/         devices, processors and network over the run, a CSV a host
checkpoints/     for the continuation of an incomplete run
earlier/         files of former attempts
claims/          the processes that worked on it
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpc_utils.config import ConfigError

from . import atomic, claim, fingerprint, packed

CHECKPOINTS, PROFILE, MONITOR, SACCT = "checkpoints", "profile", "monitor", "sacct.csv"
KERNELS = "profile/kernels.csv"  # of an imported run: columns as of `analyze.profiles.kernels.kernel_table`

Row = Mapping[str, Any]


class AlreadyComplete(Exception):
    """The run was measured before; `path` is its folder."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)  # the path, so that the error can be pickled
        self.path = path
        self.add_note("redo=True measures it again")

    def __str__(self) -> str:
        return f"{self.path.name} is complete already"


class RunFolder:
    """`results/runs/<run id>/`, opened for writing by its claimant."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    @property
    def run_id(self) -> str:
        return self.path.name

    @classmethod
    def claimed(
        cls, path: Path, *, redo: bool = False, is_gone: Callable[[Row], bool] = claim.assume_alive
    ) -> RunFolder:
        """Claim `path` and clear it for a new attempt; files of a former attempt move to `earlier/`.

        Its checkpoints are kept for a continuation, unless `redo` is set; a requeued job continues even so.

        Raises:
            AlreadyComplete: the run is complete and `redo` is not set.
            ClaimedElsewhere: another process works on it.
        """
        redo = redo and not claim.is_restarted(path)
        if state(path) == "complete" and not redo:
            shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)  # its process was killed before `close` ended
            raise AlreadyComplete(path)
        claim.claim(path, is_gone)
        if state(path) == "complete" and not redo:  # finished by another process between check and claim
            claim.release(path)
            raise AlreadyComplete(path)
        if redo:
            shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)
        former = [p for p in path.iterdir() if p.name not in ("claims", "earlier", CHECKPOINTS)]
        if former:
            shelf = path / "earlier" / f"{cls(path).next_shelf():04d}"
            shelf.mkdir(parents=True)
            for item in former:
                shutil.move(item, shelf / item.name)
        folder = cls(path)
        folder.set_status("running")
        return folder

    def close(self, state: str, reason: str = "") -> None:
        """Record how the run ended (`complete`, `stopped` or `failed`) and release the claim."""
        (self.path / "progress.json").unlink(missing_ok=True)  # first: the disk may be full
        try:
            self.set_status(state, reason)
        finally:
            claim.release(self.path)
        if state == "complete":
            shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)

    def set_status(self, state: str, reason: str = "") -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        before = read_json(self.path / "status.json") or {}
        status = {"state": state, "started": before.get("started", now), "updated": now, "reason": reason}
        if state == "complete":
            status["tables"] = {
                name: fingerprint.of_file(self.path / name) for name in packed.TABLES if self.size(name)
            }
        atomic.write_json(self.path / "status.json", status)

    def write_json(self, name: str, value: Any) -> None:
        atomic.write_json(self.path / name, value)

    def write_table(self, name: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """A CSV of `rows`; missing and None are empty."""
        atomic.write_text(self.path / name, _csv(columns, rows, header=True))

    def append_table(self, name: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """Append `rows` to a gzipped CSV as another member."""
        path = self.path / name
        text = _csv(columns, rows, header=not path.exists())
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(gzip.compress(text.encode(), compresslevel=1, mtime=0))
            file.flush()
            os.fsync(file.fileno())  # a checkpoint relies on it

    def size(self, name: str) -> int:
        """Bytes of a file in the folder; 0 if there is none."""
        path = self.path / name
        return path.stat().st_size if path.exists() else 0

    def next_shelf(self) -> int:
        """Number of the folder in `earlier/` that will take the files of this attempt."""
        # By the folders that exist, not by claims: those may be deleted by hand.
        return 1 + max((int(shelf.name) for shelf in self.path.glob("earlier/[0-9]*")), default=0)

    def restore(self, name: str, size: int, shelf: int) -> bool:
        """Start a growing file with its first `size` bytes, from the attempt in `earlier/<shelf>` or a later one.

        False if none has them.
        """
        if not size:
            return True
        for number in reversed(range(shelf, self.next_shelf())):
            former = RunFolder(self.path / "earlier" / f"{number:04d}")
            if former.size(name) >= size:
                head = (former.path / name).read_bytes()[:size]
                atomic.write_file(self.path / name, lambda file: file.write(head))  # noqa: B023
                return True
        return False


def _csv(columns: Sequence[str], rows: Iterable[Row], *, header: bool) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def require_same_request(folder: RunFolder | None, config: Mapping[str, Any]) -> None:
    """Check that a notebook trains with the parameters that the launcher claimed the run for.

    Raises:
        ConfigError: a notebook changed parameters after they were injected, so the run id would be false.
    """
    request = folder and read_json(folder.path / "request.json")
    if not request:
        return
    differing = sorted(name for name, value in request["config"].items() if config.get(name) != value)
    if differing:
        raise ConfigError(
            f"the run {folder.run_id} was started for other values of {', '.join(differing)} than the notebook "
            f"trains: pass them as parameters (-p name=value) instead of changing them in a later cell"
        )


def read_json(path: Path) -> Any:
    """The JSON in `path`, which may be a file of a packed run; None if it is missing or incomplete."""
    try:
        return json.loads(packed.content(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def profiled_files(run: Path) -> dict[str, int]:
    """{name: bytes} of the files in a run's `profile/`, sorted by name."""
    files = sorted(path for path in (run / PROFILE).glob("[!.]*") if path.is_file())
    return {path.name: path.stat().st_size for path in files}


def state(run: Path) -> str:
    """`complete`, `stopped` (in order, checkpointed), `failed`, `running`, `dead` or `absent`.

    A dead run is recorded as running, but no living process claims it.
    """
    status = read_json(run / "status.json")
    if not isinstance(status, dict) or "state" not in status:
        return "absent"
    if status["state"] != "running":
        return status["state"]
    _, owner = claim.current(run)
    return "running" if owner and claim.is_alive(owner) else "dead"
