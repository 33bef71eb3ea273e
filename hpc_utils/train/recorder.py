"""The recorder: times any training loop and writes its records.

    with Recorder("my-gpt", global_batch=64) as run:
        for epoch in range(epochs):
            for x, y in run.epoch(loader):
                loss = ...; loss.backward(); optimizer.step()
                run.step(samples=len(y), loss=loss)

The trainer (`loop`) uses the same class.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch
from torch import Tensor

from hpc_utils import source_code, workspace
from hpc_utils.config import RunConfig, choices, json_or_text
from hpc_utils.records import checks, identity
from hpc_utils.records.folder import profiled_files, read_json
from hpc_utils.workspace import Launch

from . import energy, epoch_stats
from .epoch_stats import EpochStats, Usage, UsageMeter
from .memory import MemoryMeter
from .monitor import Monitor
from .optimizer_watch import OptimizerWatch
from .precision import default_precision
from .profile_window import BEFORE, NoWindow, ProfileWindow
from .progress import Progress
from .ranks import Ranks, present
from .run_writer import RunWriter, launched_folder, launched_script
from .timing import OTHER, StepClock
from .turns import Turns
from .workload import Finish, means

T = TypeVar("T")
CHOICES = {name: choices(name) for name in ("precision", "parallel")}


class NonFiniteLoss(FloatingPointError):
    """The loss became NaN or infinite."""


class Recorder:
    """Times and records one run. Every rank creates one; rank 0 writes.

    Args:
        workload: name of the workload in the records.
        global_batch: samples per step over all ranks.
        parameters: other values that identify this measurement; any `RunConfig` field is recognised. Those that `hpc run`
            was given for a script are added.
        device: device of the loop; by default the GPU that this process already uses, else the CPU.
        ranks: by default taken from torch.distributed; the trainer gives them.
        redo: measure again even if the run is complete.
        sources: further source files whose digest is part of the run's provenance, and identifies a measurement that is started by
            hand; added are the running script and the modules that it imports.

    Raises:
        ValueError: the global batch does not divide over the ranks, a parameter is no JSON value, or the loop does not train
            what `hpc run` was asked for.
        RuntimeError: torchrun started several processes, but torch.distributed has no process group; at the end of an epoch, if the
            loop has started no collective in it; of the first, if the weights of the ranks are not as `parallel` says.
        AlreadyComplete: on entry, on every rank, if the run is complete.
        ClaimedElsewhere: on entry, if another process is measuring the run.
        ConfigError: the requested `profile` is not available.
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
        is_own_loop = ranks is None
        self._is_script = False
        self.ranks = ranks = ranks or present(device)
        if global_batch % ranks.world_size:
            raise ValueError(f"global_batch={global_batch} does not divide over {ranks.world_size} ranks")
        self.parameters = {
            "workload": workload,
            "parallel": "ddp" if ranks.backend else "none",
            "precision": default_precision(ranks.device),
            "repeat": 1,
            **(parameters or {}),
            "global_batch": global_batch,
        }
        self._outside: list[Path] = []  # imported modules that the identity of the run does not contain
        if is_own_loop:
            sources = self._identify_loop(list(map(Path, sources)), {"global_batch", *(parameters or {})})
        for name, value in self.parameters.items():
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                raise ValueError(f"parameter {name} is {value!r}; expected a number, text, list or dict") from None
        self.facts: dict[str, Any] = {}
        self.path: Path | None = None
        self.rows: list[dict[str, Any]] = []
        self.of_means: Finish = {}  # `finish` of a `Workload`
        self._idle_since = 0.0  # s, the end of the last epoch
        self._redo = redo
        self._sources = sources
        self._writer: RunWriter | None = None  # on rank 0 only
        self._expected: int | None = None  # steps per epoch
        self._stats = EpochStats()
        self._total = Usage()
        self._in_epoch = False
        self._has_batch = False  # of which no step was marked
        self._is_own_loop = is_own_loop
        self._must_reduce = is_own_loop and ranks.world_size > 1 and self.parameters["parallel"] != "own"
        self._watch: OptimizerWatch | None = None  # of a loop of a user's own, in its first epoch
        self._is_carried = False  # whether the next epoch continues a checkpointed one
        self._rounds: list[dict[str, Any]] = []
        self.waited = 0.0  # s, for this run's turns
        # A captured step has no phase but the wait for data, which is not compared with others of the same step.
        every = 1 if self.parameters.get("step_graph") else self.parameters.get("phase_every", 4)
        self._clock = StepClock(ranks.device, every)
        self._memory = MemoryMeter(ranks.device)
        self._energy = energy.meter(ranks.device)
        self._usage = UsageMeter(ranks, self._energy)
        is_profiled = self.parameters.get("profile") is not None
        self._profile = (
            ProfileWindow(self.parameters, ranks, lambda: self.paused(profiling=True)) if is_profiled else NoWindow()
        )
        self._monitor = Monitor(self.parameters, ranks)
        self._progress = Progress(show=ranks.is_main)
        self._observers = (self._memory, self._energy, self._profile, self._monitor, self._progress)

    def _identify_loop(self, sources: list[Path], named: Collection[str]) -> list[Path]:
        """Add the digest of a user's loop, and what it was started for, to the parameters, of which the loop has `named` some; returns
        its files."""
        requested = launched_script()
        script = Path(getattr(sys.modules["__main__"], "__file__", ""))  # none in an interactive session
        workload = requested.workload if requested else source_code.script_name(script)
        self._is_script = bool(workload)
        files = dict.fromkeys(
            [*(source_code.files(workload) if workload else ()), *(path.resolve() for path in sources)]
        )
        if files:
            self.parameters["source"] = source_code.digest_of(files)
        if requested:
            self._require(requested)
        elif workload:
            self._identify_arguments(workload, named)
        if workload:
            loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
            paths = (Path(file) for file in loaded if isinstance(file, str))
            modules = (path for path in paths if path.is_absolute() and path.suffix == ".py" and not _is_known(path))
            # Resolved last: of thousands of modules of libraries each costs a look at every folder above it.
            self._outside = [file for file in map(Path.resolve, modules) if not (file in files or _is_known(file))]
        return list(files)

    def _identify_arguments(self, workload: str, named: Collection[str]) -> None:
        """Add the options that the script was started with by hand, but for those that it has `named` itself."""
        defaults = source_code.declared_options(workload)
        values = {name: defaults[name] for name in CHOICES if defaults.get(name) is not None} | _command_line()
        values = {name: value for name, value in values.items() if name not in named}
        if (values.get("parallel", "none") != "none") != (self.ranks.backend is not None):
            values.pop("parallel", None)  # a default that this start does not use
        fields = {name: values[name] for name in ("repeat", "seed") if isinstance(values.get(name), int)}
        fields |= {name: values[name] for name, allowed in CHOICES.items() if values.get(name) in allowed}
        arguments = {name: value for name, value in values.items() if name not in fields}
        self.parameters = {"workload_args": arguments} | self.parameters | fields

    def _require(self, requested: RunConfig) -> None:
        """Add what `hpc run` was asked for to the parameters; ValueError if the loop does otherwise."""
        asked = identity.measured(requested, self.ranks.world_size)
        has_group = self.ranks.backend is not None
        if has_group != (asked["parallel"] != "none"):
            raise ValueError(
                f"parallel={asked['parallel']}, but the loop has {'a' if has_group else 'no'} process group"
            )
        for name in ("global_batch", *requested.workload_args.keys() & self.parameters.keys()):
            value = (asked | requested.workload_args)[name]
            if self.parameters[name] != value:
                raise ValueError(f"the loop trains with {name}={self.parameters[name]}, but was started for {value}")
        self.parameters |= identity.changed(asked)

    # -- the run ------------------------------------------------------------------------------------------

    def __enter__(self) -> Recorder:
        problem: Exception | None = None
        folder = launched_folder(take=True)
        self._turns = Turns(workspace.launch() if folder else Launch(), self.ranks.rank)
        if self.ranks.is_main:
            try:
                self._writer = RunWriter(
                    self.ranks, self.parameters, self.facts, folder=folder, redo=self._redo, sources=self._sources
                )
            except Exception as error:  # raised on every rank below: otherwise the others would wait forever
                problem = error
        self.path, problem = self.ranks.broadcast((self._writer and self._writer.folder.path, problem))
        if problem is not None:
            raise problem
        for file in self._outside:
            self.remark(
                f"{file} was found by the script's own search: an edit of it is not noticed; add its folder to PYTHONPATH"
            )
        if self._is_script:
            self.facts["setup_seconds"] = time.time() - psutil.Process().create_time()
        self._watch = OptimizerWatch() if self._is_own_loop else None
        with contextlib.ExitStack() as undo:
            undo.push(self)  # an error from here on is the run's
            for observer in self._observers:
                observer.on_start(self.path)
            undo.pop_all()
        return self

    def expect(self, epochs: int, steps: int, *, done: int = 0) -> None:
        """Set the planned epochs and steps per epoch, and the steps already done, for the progress display."""
        self._expected = steps or None
        self._progress.expect(epochs, steps, done=done)

    def remark(self, text: str) -> None:
        """Print a remark about the run and store it in `run.json`."""
        if self._writer:
            self._writer.remark(text)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        self._unwatch()
        try:
            with contextlib.ExitStack() as ends:  # each, also if another fails
                for observer in reversed(self._observers):
                    ends.callback(observer.on_end, self.rows)
            if error is None:
                self._finish()
        except BaseException as failure:
            error = error or failure
            raise
        finally:
            if self._writer:
                self._writer.close(error)

    def _finish(self) -> None:
        self._require_closed()
        if not self.rows:
            raise RuntimeError("no epoch was recorded: loop over `run.epoch(loader)` inside the recorder")
        self._end_evaluation()
        self._write_ranks()
        self._remark_problems()
        if self._writer:
            self._writer.write_epochs(self.rows)  # with the last one's evaluation
            self._remark_interruption()
            self._writer.finish()
        self.ranks.settle()

    def _write_ranks(self) -> None:
        ranks = self.ranks
        total = dict(self._total)
        faults_per_step = total.pop("page_faults") / total.pop("steps")
        sums = {name: float(value) for name, value in self._stats.sums.items()}
        own_means = means(sums, self._stats.samples, self.of_means)
        mine = {
            "rank": ranks.rank,
            "local_rank": ranks.local_rank,
            "host": socket.gethostname(),
            "device": str(ranks.device),
            "device_name": ranks.device_name,
            "cores": " ".join(map(str, ranks.cores)),
            **total,
            "page_faults": faults_per_step,
            **self._memory.columns(),
            **{f"train_{name}": value for name, value in own_means.items()},
        }
        everyone = ranks.gather((mine, self._energy.source, self._energy.name))
        if self._writer:
            joules = energy.once((name, row["energy_joules"]) for row, _, name in everyone)
            self.facts["energy_source"] = "+".join(sorted({source for _, source, _ in everyone if source}))
            rows = [row | {"energy_joules": used} for (row, *_), used in zip(everyone, joules, strict=True)]
            self._writer.write_ranks(rows)

    def _remark_problems(self) -> None:
        """Record the problems of all ranks' profilers and monitors, and the files of the profile."""
        facts = self._profile.facts
        problems = self.ranks.gather([text for observer in self._observers for text in observer.problems])
        for rank, rank_problems in enumerate(problems):
            for text in rank_problems:
                self.remark(f"rank {rank}: {text}")
        if facts is not None:
            self.facts["profiled"] = {**facts, "files": profiled_files(self.path)}
            if not facts["steps"] and not any(problems):
                self.remark(f"no step was profiled: the first {BEFORE} steps are skipped, and there were no more")

    def _remark_interruption(self) -> None:
        """A script that resumes from a checkpoint of its own records only the epochs that followed."""
        former = max(self.path.glob("earlier/*/epochs.csv"), default=None) if self._is_script else None
        if former and (read_json(former.with_name("status.json")) or {}).get("state") != "complete":
            self.remark(
                f"an interrupted attempt is in {former.parent.relative_to(self.path)}: if the script resumed from a checkpoint, "
                "the epochs before it are missing here; remove the checkpoint and measure the run again with --redo"
            )

    # -- epochs and steps ---------------------------------------------------------------------------------

    def epoch(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches` and time the loop as the training part of one epoch. Call `step` at the end of each step.

        To stop early, shorten the loader with `itertools.islice`; leaving the loop by `break` is an error.
        """
        self._require_closed()
        self._end_evaluation()
        if self._is_carried:
            self._stats.restarts += 1
        else:
            self._stats = EpochStats()
        self._in_epoch = True
        self._is_carried = False
        done = len(self._stats.steps)
        last = self._expected or (done + len(batches) if isinstance(batches, Sized) else None)
        for observer in self._observers:
            observer.on_epoch(self.rows, done + 1, last)
        self._clock.start()
        self._begin_block()
        collectives = self.ranks.collectives if self._must_reduce else None
        batch_count = 0
        source = iter(batches)
        while True:
            if self._turns.is_over(len(self._stats.steps) + self._clock.steps):
                self._end_block()
                self._begin_block()
            if self._is_own_loop:  # what the loop did since its last mark is not the wait for data
                self._clock.lap(OTHER)
            if self._has_batch:
                self._profile.lap(OTHER)
            else:
                self._profile.begin_step()
            try:
                batch = next(source)
            except StopIteration:
                break
            self.lap("data")
            self._has_batch = True
            batch_count += 1
            yield batch
        if collectives is not None and self.ranks.collectives == collectives and not self.ranks.has_graphs:
            raise RuntimeError(
                f"parallel={self.parameters['parallel']}, but the epoch has started no collective of torch.distributed, so each rank "
                "trains a model of its own: wrap the model in DistributedDataParallel and call the wrapper, or give parallel=own if "
                "the gradients are reduced otherwise"
            )
        self._profile.end_epoch()
        self._end_block()
        if (
            self._must_reduce
            and self._watch
            and (fault := self._watch.fault(self.parameters["parallel"], self.ranks))
        ):
            raise RuntimeError(f"parallel={self.parameters['parallel']}, but the loop does otherwise: {fault}")
        self._close_epoch()
        self._remark_steps(batch_count)

    def _remark_steps(self, batch_count: int) -> None:
        """Remark, after the first epoch of a script, that its steps are not those of its batches or of its optimizer."""
        step_count = len(self._stats.steps)
        if self._is_script and len(self.rows) == 1 and batch_count > step_count:
            self.remark(
                f"{batch_count} batches in {step_count} steps: a step's samples must be those of all its batches"
            )
        if self._watch and 0 < self._watch.steps <= step_count / 2:  # loss scaling may skip some
            self.remark(
                f"{step_count} steps, but an optimizer has made {self._watch.steps}: call run.step once for each of its"
            )
        self._unwatch()

    def _unwatch(self) -> None:
        if self._watch:
            self._watch.close()
            self._watch = None

    def _begin_block(self) -> None:
        """Wait for this run's turn, then start the clock on all ranks."""
        block = self._stats.block or {"steps": 0}
        step_seconds = block["seconds"] / block["steps"] if block["steps"] else 0.0
        begun = time.monotonic()
        turn = self._turns.take(len(self._stats.steps) + self._clock.steps, self._expected, step_seconds)
        self.waited += time.monotonic() - begun
        self._stats.begin_block(turn)
        self.ranks.barrier()
        self._usage.start()
        self._clock.skip()

    def _end_block(self) -> None:
        self.ranks.synchronize()
        self._stats.add_usage(self._usage.stop())

    def _close_epoch(self) -> None:
        self._in_epoch = self._has_batch = False
        stats = self._stats
        self._require_finite()
        stats.steps += self._clock.finish()
        if not stats.steps:
            raise RuntimeError(
                "no step was recorded: call `run.step(samples=...)` for each batch of `run.epoch(loader)`"
            )
        self._total.update(stats.usage)
        self._total.update(steps=len(stats.steps), samples=stats.samples)
        stats.begin_block(None)
        row, times, blocks = epoch_stats.reduce(
            len(self.rows) + 1, stats, self.ranks, self._energy.name, self.of_means
        )
        self.rows.append(row)
        self._rounds += blocks
        if self._writer:
            self._writer.write_epochs(self.rows)
            self._writer.write_rounds(self._rounds)
            self._writer.append_steps(row["epoch"], times)
        self._idle_since = time.perf_counter()

    def _end_evaluation(self) -> None:
        """Record the time since the last epoch as that of its evaluation, unless the script noted it."""
        if self._is_script and self.rows:
            self.rows[-1].setdefault("eval_seconds", time.perf_counter() - self._idle_since)

    @contextlib.contextmanager
    def paused(self, *, profiling: bool = False) -> Iterator[None]:
        """Pause the clock on all ranks between two steps; the time counts as the epoch's `checkpoint_seconds`, or `profile_seconds`."""
        self.ranks.synchronize()
        begun = time.perf_counter()
        if self._in_epoch:
            self._stats.add_usage(self._usage.stop())
        yield
        self.ranks.barrier()
        seconds = time.perf_counter() - begun
        if self._in_epoch:
            if profiling:
                self._stats.profiling += seconds
            else:
                self._stats.paused += seconds
            self._usage.start()
            self._clock.skip()
        elif self.rows:
            self.rows[-1]["checkpoint_seconds"] = self.rows[-1].get("checkpoint_seconds", 0.0) + seconds
            self._idle_since += seconds

    def lap(self, phase: str) -> None:
        """Mark the end of a phase of the step (`forward`, `backward`)."""
        self._clock.lap(phase)
        self._profile.lap(phase)

    def step(
        self, *, samples: int, loss: Tensor | float | None = None, lr: float | None = None, **sums: Tensor | float
    ) -> None:
        """Mark the end of a step.

        Args:
            samples: samples that this rank trained on. loss: their mean loss. lr: learning rate of the step.
            sums: further metrics, summed over this rank's samples; recorded as `train_<name>` per sample.

        Raises:
            ValueError: there are no samples.
            RuntimeError: `epoch` has yielded no batch since the last step, or is over.
            NonFiniteLoss: checked at every step on a CPU; on a GPU every 50 steps, to avoid synchronising.
        """
        if not samples > 0:
            raise ValueError(f"samples={samples}: pass how many samples this rank trained on, at least one")
        if not self._has_batch:
            raise RuntimeError(
                "run.step: no batch since the last step: call it inside the loop over run.epoch(loader), once for one or several "
                "batches"
            )
        self._has_batch = False
        self._stats.add_step(samples, loss, lr, sums)
        sampled = self._clock.sampled
        self._clock.step()
        for observer in self._observers:  # after the step is timed, so that observers do not count in it
            observer.on_step(sampled)
        if self.ranks.device.type == "cpu" or self._clock.steps % 50 == 0:
            self._require_finite()

    def note(self, **values: float) -> None:
        """Add values (`test_loss`, `test_accuracy`, `eval_seconds`, ...) to the last epoch's row: those of rank 0, so reduce them first.

        Raises:
            ValueError: a value is not a finite number, or an accuracy is not in [0, 1].
        """
        if not self.rows:
            raise RuntimeError("no epoch yet: call `note` after the first epoch")
        if fault := next(checks.value_faults(values), None):
            raise ValueError(f"note: {fault}")
        self.rows[-1].update(values)
        if self._writer:
            self._writer.write_epochs(self.rows)

    def _require_finite(self) -> None:
        total = float(self._stats.sums.get("loss", 0.0))
        if not math.isfinite(total):
            step = len(self._stats.steps) + self._clock.steps
            wider = "" if self.parameters["precision"] in ("fp32", "tf32") else ", or precision='fp32'"
            raise NonFiniteLoss(
                f"the loss became {total} by step {step} of epoch {len(self.rows) + 1} "
                f"on rank {self.ranks.rank}: try a smaller lr or a longer warm-up{wider}"
            )

    # -- checkpoints --------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the records so far for a checkpoint, as tensors and plain values. Call it on rank 0, while paused."""
        return {"rows": self.rows, "rounds": self._rounds, "writer": self._writer.state()}

    def own_state(self) -> dict[str, Any]:
        """Return this rank's counts so far for a checkpoint, as tensors and plain values. Call it while paused."""
        epoch = None
        if self._in_epoch or self._is_carried:  # carried: the run stops again before the epoch continues
            epoch = self._stats.state(self._clock.finish() if self._in_epoch else [])
        return {"epoch": epoch, "total": dict(self._total), "memory": self._memory.state()}

    def restore(self, state: dict[str, Any], rank_state: dict[str, Any], *, epoch: int, step: int) -> None:
        """Continue from both states, in `epoch` after `step` steps. Call it between epochs."""
        self.rows = state["rows"]
        self._rounds = state["rounds"]
        self._total = Usage(rank_state["total"])
        self._memory.restore(rank_state["memory"])
        self._is_carried = rank_state["epoch"] is not None
        if self._is_carried:
            self._stats = EpochStats.continued(rank_state["epoch"], self.ranks.device)
        if self._writer:
            self._writer.restore(state["writer"], epoch=epoch, step=step)
            if self.rows:
                self._writer.write_epochs(self.rows)
                self._writer.write_rounds(self._rounds)

    def _require_closed(self) -> None:
        if self._in_epoch:
            raise RuntimeError(
                "the previous epoch did not finish, so it cannot be recorded: "
                "shorten the loader with itertools.islice instead of leaving the loop by break"
            )


def _is_known(file: Path) -> bool:
    return source_code.is_library(file) or file.is_relative_to(workspace.project())


def _command_line() -> dict[str, Any]:
    """The options of this process: `--width 16` and `--width=16` are {"width": 16}; what precedes them is `arguments`."""
    words_by_name: dict[str, list[str]] = {"arguments": []}
    name = "arguments"
    for word in sys.argv[1:]:
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            words_by_name[name] = [value] if equals else []
        else:
            words_by_name[name].append(word)
    if not words_by_name["arguments"]:
        del words_by_name["arguments"]
    return {name: json_or_text(" ".join(words)) if words else True for name, words in words_by_name.items()}
