"""Our timing and records around any training loop.

    with Recorder("my-gpt", global_batch=64) as run:
        for epoch in range(epochs):
            for x, y in run.epoch(loader):
                loss = ...; loss.backward(); optimizer.step()
                run.step(samples=len(x), loss=loss)

Our own trainer records itself through the same object.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from hpc_utils import device_share, paths, provenance
from hpc_utils.records.folder import AlreadyComplete, RunFolder, profiled_files
from hpc_utils.records.identity import run_id
from hpc_utils.records.load import verify
from hpc_utils.signals import Stopped

from . import energy, memory
from .journal import Journal
from .monitor import Monitor
from .precision import default_precision
from .progress import Progress
from .ranks import Ranks, present
from .tally import Tally, distribution
from .timing import StepClock
from .window import BEFORE, window

T = TypeVar("T")


class NonFiniteLoss(FloatingPointError):
    """The loss became NaN or infinite."""


class Recorder:
    """Times and records one run; every rank holds one, rank 0 writes.

    Args:
        workload: what is trained, as it shall be called.
        global_batch: samples a step over all ranks.
        parameters: whatever else tells this measurement from another; any `RunConfig` name is understood.
        device: where the loop trains; if not given, the GPU that this process uses already, else the CPU.
        ranks: found from torch.distributed if not given.
        redo: measure again although the run is complete.
        sources: files beside this project whose digest belongs to the run's provenance.

    Raises:
        ValueError: the global batch does not divide over the ranks, or a parameter is no plain value.
        AlreadyComplete: on entry, on every rank, if the run was measured before.
        ClaimedElsewhere: on entry, if somebody is measuring it now.
        ConfigError: the `profile` that is asked for cannot be had here.
    """

    def __init__(
        self,
        workload: str,
        *,
        global_batch: int,
        parameters: Mapping[str, Any] | None = None,
        device: torch.device | str | None = None,
        ranks: Ranks | None = None,
        redo: bool = False,
        sources: Iterable[Path] = (),
    ) -> None:
        self.ranks = ranks or present(device)
        if global_batch % self.ranks.world_size:
            raise ValueError(f"global_batch={global_batch} does not divide over {self.ranks.world_size} ranks")
        self.parameters = {
            "workload": workload,
            "parallel": "ddp" if self.ranks.backend else "none",
            "precision": default_precision(self.ranks.device),
            "repeat": 1,
            **(parameters or {}),
            "global_batch": global_batch,
        }
        _require_plain(self.parameters)
        self.facts: dict[str, Any] = {}
        self.path: Path | None = None
        self.rows: list[dict[str, Any]] = []
        self._redo, self._sources = redo, list(sources)
        self._journal: Journal | None = None  # rank 0's
        self._owns_folder = False
        self._progress: Progress | None = None
        self._clock = StepClock(self.ranks.device, self.parameters.get("phase_every", 4))
        self._tally, self._carried = Tally(), None
        self._open_epoch = False
        self._window = window(self.parameters, self.ranks, self.paused)
        self._monitor = Monitor(self.parameters, self.ranks)
        self._expected: int | None = None  # steps of an epoch
        counts, amounts = ("steps", "samples", "faults"), ("seconds", "cpu", "throttled", "joules")
        self._total = dict.fromkeys(counts, 0) | dict.fromkeys(amounts, 0.0)
        self._meter = energy.Meter(energy.find(self.ranks.device))
        self._peaks: dict[str, int | None] = {}  # of former attempts
        self._level = memory.Level(self.ranks.device)
        self._announced = 0

    # -- the run ------------------------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        problem: Exception | None = None
        launched = RunFolder.take_from_launcher()
        if self.ranks.is_main:
            try:
                self._open_folder(launched)
            except Exception as error:  # every rank must hear of it, or the others wait for ever
                problem = error
        self.path, problem = self.ranks.broadcast((self._journal and self._journal.folder.path, problem))
        if problem is not None:
            raise problem
        memory.reset_peak(self.ranks.device)
        self.expect(0, 0)
        self._monitor.start(self.path)
        return self

    def expect(self, epochs: int, steps: int, *, done: int = 0) -> None:
        """How much is planned (epochs, and steps in each) and done, for the progress bar and the time left."""
        if self._progress:
            self._progress.close()
        self._expected = steps or None
        heartbeat = self.path / "progress.json" if self.ranks.is_main and steps else None
        self._progress = Progress(heartbeat, epochs, steps, done=done, show=self.ranks.is_main)

    def remark(self, text: str) -> None:
        """Tell whoever watches, and keep in `run.json`, what happened beside the plan."""
        if self._journal:
            self._journal.remark(text)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        self._announce()
        self._progress.close()
        self._window.close()
        self._monitor.stop()
        try:
            if error is None:
                self._finish()
        except BaseException as failure:
            error = failure
            raise
        finally:
            if self._journal and self._owns_folder:
                # A full disk must not hide the error itself.
                with contextlib.suppress(OSError) if error else contextlib.nullcontext():
                    self._journal.folder.close(*_outcome(error))

    def _finish(self) -> None:
        self._require_closed()
        if not self.rows:
            raise RuntimeError("no epoch was recorded: loop over `run.epoch(loader)` inside the recorder")
        self._write_ranks()
        self._say_what_watched()
        if self._journal:
            self._journal.write_run()
        if self._owns_folder:  # else the launcher looks
            verify(self.path)
        self.ranks.settle()

    def _open_folder(self, folder: RunFolder | None) -> None:
        if folder is None:
            name = run_id(
                self.parameters,
                nodes=self.ranks.nodes,
                ranks_per_node=self.ranks.ranks_per_node,
                hardware=provenance.hardware_id(),
            )
            folder = RunFolder.claimed(paths.runs() / name, redo=self._redo)
            self._owns_folder = True
        self._journal = Journal(folder, self.ranks, self.parameters, self.facts, self._sources)

    def _write_ranks(self) -> None:
        ranks, total = self.ranks, self._total
        mine = {
            "rank": ranks.rank,
            "local_rank": ranks.local_rank,
            "host": socket.gethostname(),
            "device": str(ranks.device),
            "device_name": ranks.device_name,
            "cores": " ".join(map(str, ranks.cores)),
            "samples": total["samples"],
            "seconds": total["seconds"],
            "page_faults": total["faults"] / total["steps"] if total["steps"] else None,
            "cpu_seconds": total["cpu"],
            "throttled_seconds": total["throttled"] if ranks.share else None,
            **self._peak(),
            **self._level.summary(),
        }
        everyone = ranks.gather((mine, self._meter.source, self._meter.name, total["joules"]))
        if self._journal:
            joules = energy.once((name, used) for _, _, name, used in everyone)
            self.facts["energy_source"] = "+".join(sorted({source for _, source, _, _ in everyone if source}))
            self._journal.write_ranks(
                [row | {"energy_joules": used} for (row, *_), used in zip(everyone, joules, strict=True)]
            )

    def _say_what_watched(self) -> None:
        facts = self._window.facts
        if facts is None and not self._monitor.seconds:
            return
        problems = self.ranks.gather([*self._window.problems, *self._monitor.problems])
        for rank, own in enumerate(problems):
            for text in own:
                self.remark(f"rank {rank}: {text}")
        if facts is not None:
            self.facts["profiled"] = {**facts, "files": profiled_files(self.path)}
            if not facts["steps"] and not any(problems):
                self.remark(f"no step was profiled: the first {BEFORE} are left out, and there were no more")

    # -- epochs and steps ---------------------------------------------------------------------------------

    def epoch(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches` and time them as one epoch's training part; call `step` at the end of each.

        To stop early, shorten the loader (`itertools.islice`): leaving the loop by `break` loses the epoch.
        """
        self._require_closed()
        self._announce()
        self._open_epoch = True
        self._tally = self._carried or Tally()
        self._tally.restarts += self._carried is not None
        self._carried = None
        self._window.arm(self.path)
        self.ranks.barrier()
        self._go()
        self._clock.start()
        done = len(self._tally.steps)
        left = self._expected - done if self._expected else len(batches) if isinstance(batches, Sized) else None
        for batch in self._window.over(batches, epoch=len(self.rows) + 1, done=done, left=left):
            self.lap("data")
            yield batch
        self.ranks.synchronize()
        self._stand()
        self._close_epoch()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """All ranks stand still between two steps: no part of T, but of the epoch's `checkpoint_seconds`."""
        self.ranks.synchronize()
        begun = time.perf_counter()
        if self._open_epoch:
            self._stand()
        yield
        self.ranks.barrier()
        seconds = time.perf_counter() - begun
        if self._open_epoch:
            self._tally.standing += seconds
            self._go()
            self._clock.skip()
        elif self.rows:
            self.rows[-1]["checkpoint_seconds"] = self.rows[-1].get("checkpoint_seconds", 0.0) + seconds

    def _go(self) -> None:
        self._meter.start()
        throttled = device_share.throttled() if self.ranks.share else 0.0
        self._since = time.perf_counter(), memory.minor_faults(), time.process_time(), throttled

    def _stand(self) -> None:
        begun, faults, cpu, throttled = self._since
        self._tally.seconds += time.perf_counter() - begun
        self._tally.faults += memory.minor_faults() - faults
        self._tally.cpu += time.process_time() - cpu
        if self.ranks.share:
            self._tally.throttled += device_share.throttled() - throttled
        self._tally.joules = energy.added(self._tally.joules, self._meter.stop())

    def lap(self, phase: str) -> None:
        """A phase of the step (`forward`, `backward`) ends here."""
        self._clock.lap(phase)
        self._window.lap(phase)

    def step(
        self, *, samples: int, loss: Tensor | float | None = None, lr: float | None = None, **sums: Tensor | float
    ) -> None:
        """A step ends here.

        Args:
            samples: how many this rank trained on. loss: their mean loss.
            sums: further metrics, summed over this rank's samples; recorded as `train_<name>` per sample.

        Raises:
            NonFiniteLoss: at once on a CPU; on a GPU within 50 steps, so as not to stop the device each time.
        """
        tally = self._tally
        tally.samples += samples
        tally.lr = lr
        if loss is not None:
            sums["loss"] = torch.as_tensor(loss).detach().double() * samples
        for name, value in sums.items():
            value = torch.as_tensor(value).detach().double()  # a bf16 sum would stand still
            tally.sums[name] = tally.sums[name] + value if name in tally.sums else value
        sampled = self._clock.sampled
        self._clock.step()
        self._window.step()
        if sampled:  # after its end: the phases are none the longer
            self._level.sample()
        self._meter.keep_up()
        self._progress.step()
        if "loss" in sums and (self.ranks.device.type == "cpu" or self._clock.steps % 50 == 0):
            self._require_finite()

    def note(self, **values: float) -> None:
        """Add values (`test_loss`, `test_accuracy`, `eval_seconds`, ...) to the last epoch's row."""
        if not self.rows:
            raise RuntimeError("no epoch yet to note anything about")
        self.rows[-1].update(values)
        if self._journal:
            self._journal.write_epochs(self.rows)

    def _announce(self) -> None:
        """Show the last epoch's line: late, so that what was noted after it is on it."""
        if self._announced < len(self.rows):
            self._announced = len(self.rows)
            self._progress.epoch(self.rows[-1])

    def _close_epoch(self) -> None:
        self._open_epoch = False
        number, tally = len(self.rows) + 1, self._tally
        times = tally.steps + self._clock.finish()
        if "loss" in tally.sums:
            self._require_finite()
        counted = {"steps": len(times), "samples": tally.samples, "seconds": tally.seconds, "faults": tally.faults}
        counted |= {"cpu": tally.cpu, "throttled": tally.throttled, "joules": tally.joules}
        self._total = {name: energy.added(value, counted[name]) for name, value in self._total.items()}
        names = sorted(tally.sums)
        totals = torch.tensor([tally.samples, *(float(tally.sums[n]) for n in names)], dtype=torch.float64)
        totals = self.ranks.sum(totals).tolist()
        everyone = self.ranks.gather((tally.seconds, tally.standing, times, (self._meter.name, tally.joules)))
        if everyone:
            longest = max(seconds for seconds, *_ in everyone)
            steps = [step for _, _, own, _ in everyone for step in own]
            row = {
                "epoch": number,
                "restarts": tally.restarts,
                "steps": len(times),
                "samples": int(totals[0]),
                "padded_samples": 0,
                "seconds": longest,
                "throughput": totals[0] / longest,
                "checkpoint_seconds": max(standing for _, standing, *_ in everyone),
                "energy_joules": energy.total(reading for *_, reading in everyone),
                "lr": tally.lr,
                **distribution(steps),
                **{f"train_{name}": total / totals[0] for name, total in zip(names, totals[1:], strict=True)},
            }
            self.rows.append(row)
            self._journal.write_epochs(self.rows)
            self._journal.append_steps(number, [own for _, _, own, _ in everyone])
        else:
            self.rows.append({"epoch": number})

    def _require_finite(self) -> None:
        total = float(self._tally.sums["loss"])
        if not math.isfinite(total):
            step = len(self._tally.steps) + self._clock.steps
            raise NonFiniteLoss(
                f"the loss became {total} by step {step} of epoch {len(self.rows) + 1} "
                f"on rank {self.ranks.rank}: try a smaller lr, a longer lr_warmup_epochs, or precision='fp32'"
            )

    def _peak(self) -> dict[str, int | None]:
        """Peak memory, over former attempts too."""
        now = memory.peak(self.ranks.device)
        return {
            name: max((v for v in (value, self._peaks.get(name)) if v is not None), default=None)
            for name, value in now.items()
        }

    # -- checkpoints --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What is recorded so far, as tensors and plain values, for a checkpoint; while paused, on rank 0."""
        return {"rows": self.rows, "announced": self._announced, "journal": self._journal.state()}

    def own_state(self) -> dict[str, Any]:
        """What this rank has counted so far, likewise."""
        epoch = None
        if self._open_epoch:
            epoch = self._tally.state(self._clock.finish())
        elif self._carried:  # stopped again before it could go on
            epoch = self._carried.state([])
        return {"epoch": epoch, "total": self._total, "peaks": self._peak(), "level": self._level.state()}

    def restore(self, state: dict[str, Any], own: dict[str, Any], *, epoch: int, step: int) -> None:
        """Go on from where both states were taken: in `epoch` after `step` of its steps. Not within an epoch."""
        self.rows, self._announced = state["rows"], state["announced"]
        self._total, self._peaks = self._total | own["total"], own["peaks"]
        if "level" in own:  # checkpoints of former versions lack it
            self._level.restore(own["level"])
        self._carried = own["epoch"] and Tally.continued(own["epoch"], self.ranks.device)
        if self._journal:
            self._journal.restore(state["journal"], epoch=epoch, step=step)
            if self.rows:
                self._journal.write_epochs(self.rows)

    def _require_closed(self) -> None:
        if self._open_epoch:
            raise RuntimeError(
                "an epoch was left before its end, so it cannot be recorded: "
                "shorten the loader with itertools.islice instead of leaving the loop by break"
            )


def _require_plain(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"parameter {name} names a measurement, so it is text, a number or a list: {error}"
            ) from None


def _outcome(error: BaseException | None) -> tuple[str, str]:
    """(state, reason) of a run that ended so."""
    if error is None:
        return "complete", ""
    return ("stopped", str(error)) if isinstance(error, Stopped) else ("failed", f"{type(error).__name__}: {error}")


__all__ = ["AlreadyComplete", "NonFiniteLoss", "Recorder"]
