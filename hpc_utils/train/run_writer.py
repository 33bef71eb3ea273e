"""Writes a run's files on rank 0: provenance, tables and `run.json`."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_utils import paths, provenance, workspace
from hpc_utils.config import RunConfig
from hpc_utils.records import fingerprint, schema
from hpc_utils.records.folder import RunFolder, read_json
from hpc_utils.records.identity import run_id
from hpc_utils.records.load import verify
from hpc_utils.signals import Stopped

from .ranks import Ranks
from .timing import StepTime

STEPS = "steps.csv.gz"

Row = Mapping[str, Any]

_used: set[str] = set()  # launchers' folders that this process has already used for a run


def launched_folder(*, take: bool = False) -> RunFolder | None:
    """The run folder that a launcher claimed for this process; None if there is none or an earlier run used it.

    Args:
        take: mark it as used.
    """
    run = workspace.launch().run
    if not run or run in _used:
        return None
    if take:
        _used.add(run)
    return RunFolder(Path(run))


def launched_script() -> RunConfig | None:
    """The configuration for which `hpc run` started this process, if that is a script that has recorded no run yet."""
    folder = launched_folder()
    request = folder and read_json(folder.path / "request.json")
    return RunConfig(**request["config"]) if request and "arguments" in request else None


class RunWriter:
    """The files of one attempt at a run.

    Args:
        parameters: parameters of the measurement. facts: further entries of `run.json`, read at each write.
        folder: folder claimed by a launcher, which also checks and closes it; if None, claimed here.
        redo: claim the folder even if the run is complete.
        sources: source files outside this project whose digest is part of the run's provenance.
    """

    def __init__(
        self,
        ranks: Ranks,
        parameters: Mapping[str, Any],
        facts: dict[str, Any],
        *,
        folder: RunFolder | None = None,
        redo: bool = False,
        sources: Iterable[Path] = (),
    ) -> None:
        self._ranks = ranks
        self._parameters = parameters
        self._facts = facts
        self._is_claimant = folder is None
        if folder is None:
            layout = {"nodes": ranks.nodes, "ranks_per_node": ranks.ranks_per_node}
            name = run_id(parameters, **layout, hardware=provenance.hardware_id())
            folder = RunFolder.claimed(paths.runs() / name, redo=redo)
        self.folder = folder
        self._remarks: list[str] = []
        self._former: list[dict[str, Any]] = []  # previous attempts that this one continues
        try:
            self._origin = provenance.collect(sources)
            self._write_origin()
        except BaseException as error:
            self.close(error)
            raise
        if cold := workspace.launch().cold:
            self.remark(f"cold start: {cold}")

    def remark(self, text: str) -> None:
        """Print a remark about the run and store it in `run.json`."""
        self._remarks.append(text)
        with contextlib.suppress(OSError):  # the log may be on the full disk that the remark is about
            print(text, flush=True)

    def write_run(self) -> None:
        """Write `run.json`."""
        ranks = self._ranks
        global_batch = self._parameters["global_batch"]
        self.folder.write_json(
            "run.json",
            {
                "schema": schema.VERSION,
                "run_id": self.folder.run_id,
                "config": self._parameters,
                "world_size": ranks.world_size,
                "nodes": ranks.nodes,
                "ranks_per_node": ranks.ranks_per_node,
                "global_batch": global_batch,
                "batch_per_device": global_batch // ranks.world_size,
                "device": ranks.device_kind,
                "backend": ranks.backend,
                "threads_per_rank": ranks.cores_per_device,
                "share_period": ranks.share and ranks.share.period,
                "pinned": bool(ranks.cores),
                "oversubscribed": ranks.oversubscribed,
                "shared": workspace.is_shared(),
                "hardware_id": provenance.hardware_id(),
                "restarts": len(self._former),
                "remarks": self._remarks,
                **self._facts,
            },
        )

    def write_epochs(self, rows: Sequence[Row]) -> None:
        """Write `epochs.csv`; a workload's own metrics come last."""
        columns = schema.names(schema.EPOCHS)
        metrics = sorted({name for row in rows for name in row} - set(columns))
        self.folder.write_table("epochs.csv", columns + metrics, map(_without_nan, rows))

    def write_rounds(self, rows: Sequence[Row]) -> None:
        """Write `rounds.csv`, if the run takes turns."""
        if rows:
            self.folder.write_table(fingerprint.ROUNDS, schema.names(schema.ROUNDS), rows)

    def append_steps(self, epoch: int, times: Sequence[Sequence[StepTime]]) -> None:
        """Append every rank's steps of an epoch to `steps.csv.gz`."""
        rows = [
            {"rank": rank, "epoch": epoch, "step": number, "seconds": step.seconds, **step.phases}
            for rank, rank_steps in enumerate(times)
            for number, step in enumerate(rank_steps, 1)
        ]
        self.folder.append_table(STEPS, schema.names(schema.STEPS), rows)

    def write_ranks(self, rows: Sequence[Row]) -> None:
        """Write `ranks.csv`."""
        columns = schema.names(schema.RANKS)
        rows = [{name: row.get(name) for name in columns} for row in rows]
        self.folder.write_table("ranks.csv", columns, map(_without_nan, rows))

    def finish(self) -> None:
        """Write the final `run.json`; without a launcher, verify the records and print their folder."""
        self.write_run()
        if self._is_claimant:
            verify(self.folder.path)
            print(self.folder.path)

    def close(self, error: BaseException | None) -> None:
        """Record how the run ended and release the claim. A full disk must not hide `error`."""
        if not self._is_claimant:
            return
        state, reason = "complete", ""
        if isinstance(error, Stopped):
            state, reason = "stopped", str(error)
        elif error is not None:
            state, reason = "failed", f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError) if error else contextlib.nullcontext():
            self.folder.close(state, reason)

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint: all attempts so far, and the size of `steps.csv.gz`."""
        attempt = {name: self._origin.get(name) for name in ("collected_at", "digest", "commit")}
        attempt |= {"host": socket.gethostname(), "job": (self._origin.get("job") or {}).get("id")}
        return {
            "attempts": [*self._former, attempt],
            "remarks": self._remarks,
            "steps": {"size": self.folder.size(STEPS), "shelf": self.folder.next_shelf()},
        }

    def restore(self, state: dict[str, Any], *, epoch: int, step: int) -> None:
        """Continue from `state`, in `epoch` after `step` steps."""
        *former, last = state["attempts"]
        self._former = [*former, last | {"until_epoch": epoch, "until_step": step}]
        self._remarks[:0] = state["remarks"]
        if last["digest"] != self._origin["digest"]:
            current_digest, former_digest = (str(digest)[:12] for digest in (self._origin["digest"], last["digest"]))
            digests = f"its digest is {current_digest}, was {former_digest}"
            self.remark(f"NOTE: the code has changed since that checkpoint: {digests}")
        if not self.folder.restore(STEPS, **state["steps"]):
            self.remark(f"the step times before epoch {epoch} are lost: no previous {STEPS} has them")
        self._write_origin()

    def _write_origin(self) -> None:
        self.folder.write_json("provenance.json", self._origin | {"continues": self._former})
        self.write_run()


def _without_nan(row: Row) -> Row:
    """`row` with NaN replaced by None."""
    return {name: None if value != value else value for name, value in row.items()}
