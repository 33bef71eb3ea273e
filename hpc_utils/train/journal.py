"""What rank 0 writes into a run's folder: where the run comes from, what was measured, and what happened beside."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpc_utils import provenance, workspace
from hpc_utils.records import schema
from hpc_utils.records.folder import RunFolder

from .ranks import Ranks
from .timing import StepTime

STEPS = "steps.csv.gz"

Row = Mapping[str, Any]


class Journal:
    """The files of one attempt at a run.

    Args:
        folder: the run's, claimed.
        parameters: what is measured. facts: what else `run.json` shall say; looked at whenever it is written.
        sources: files beside this project whose digest belongs to the run's provenance.
    """

    def __init__(
        self,
        folder: RunFolder,
        ranks: Ranks,
        parameters: Mapping[str, Any],
        facts: dict[str, Any],
        sources: Iterable[Path] = (),
    ) -> None:
        self.folder = folder
        self._ranks, self._parameters, self._facts = ranks, parameters, facts
        self._remarks: list[str] = []
        self._former: list[dict[str, Any]] = []  # attempts that this one continues
        self._origin = provenance.collect(sources)
        self._write_origin()
        if refused := workspace.launch().cold:
            self.remark(f"cold start: {refused}")

    def remark(self, text: str) -> None:
        """Tell whoever watches, and keep in `run.json`, what happened beside the plan."""
        self._remarks.append(text)
        with contextlib.suppress(OSError):  # the log may be on the full disk that this is about
            print(text, flush=True)

    def write_run(self) -> None:
        """`run.json`."""
        ranks, global_batch = self._ranks, self._parameters["global_batch"]
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
                "hardware_id": provenance.hardware_id(),
                "restarts": len(self._former),
                "remarks": self._remarks,
                **self._facts,
            },
        )

    def write_epochs(self, rows: Sequence[Row]) -> None:
        """`epochs.csv`; metrics of a workload's own come last."""
        known = schema.names(schema.EPOCHS)
        own = sorted({name for row in rows for name in row} - set(known))
        self.folder.write_table("epochs.csv", known + own, rows)

    def append_steps(self, epoch: int, times: Sequence[Sequence[StepTime]]) -> None:
        """Every rank's steps of an epoch to `steps.csv.gz`."""
        rows = [
            {"rank": rank, "epoch": epoch, "step": number, "seconds": step.seconds, **step.phases}
            for rank, own in enumerate(times)
            for number, step in enumerate(own, 1)
        ]
        self.folder.append_table(STEPS, schema.names(schema.STEPS), rows)

    def write_ranks(self, rows: Sequence[Row]) -> None:
        """`ranks.csv`."""
        self.folder.write_table("ranks.csv", schema.names(schema.RANKS), rows)

    def state(self) -> dict[str, Any]:
        """For a checkpoint, plain values: this attempt and those before, and how many step times are on disk."""
        attempt = {name: self._origin.get(name) for name in ("collected_at", "digest", "commit")}
        attempt |= {"host": socket.gethostname(), "job": (self._origin.get("job") or {}).get("id")}
        return {
            "attempts": [*self._former, attempt],
            "remarks": self._remarks,
            "steps": {"size": self.folder.size(STEPS), "shelf": self.folder.next_shelf()},
        }

    def restore(self, state: dict[str, Any], *, epoch: int, step: int) -> None:
        """Go on where `state` was taken: in `epoch`, after `step` of its steps."""
        *former, last = state["attempts"]
        self._former = [*former, last | {"until_epoch": epoch, "until_step": step}]
        self._remarks[:0] = state["remarks"]
        if last["digest"] != self._origin["digest"]:
            now, before = (str(digest)[:12] for digest in (self._origin["digest"], last["digest"]))
            self.remark(f"NOTE: the code has changed since that checkpoint: its digest is {now}, was {before}")
        if not self.folder.restore(STEPS, **state["steps"]):
            self.remark(f"the step times of the epochs before {epoch} are lost: no former {STEPS} holds them")
        self._write_origin()

    def _write_origin(self) -> None:
        self.folder.write_json("provenance.json", self._origin | {"continues": self._former})
        self.write_run()
