"""The trainer: warm up, resume, then train and evaluate epoch by epoch, on any number of ranks."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from signal import Signals
from typing import Any

import torch
from torch import Tensor, nn

from hpc_utils import signals
from hpc_utils.config import RunConfig
from hpc_utils.records import atomic
from hpc_utils.records.folder import CHECKPOINTS

from . import compilation, memory, operations, optim, precision, randomness
from .blocks import checkpoint_activations
from .checkpoint import CheckpointError, Checkpoints, read_checkpoint
from .checkpoint_policy import CheckpointPolicy, StopRequest
from .evaluation import Evaluation
from .loader import Loader
from .parallel import spread
from .parallel.strategy import Strategy
from .pytree import batch_size, microbatches, on_host
from .ranks import Ranks
from .recorder import Recorder
from .resolve import resolve
from .sampler import Sampler
from .step_graph import WARM_UP, StepGraph, require_capturable, state_tensors, zero_state
from .timing import StepClock
from .workload import UNITS, Batch, Workload

EAGER_STEPS = 4  # of the warm-up, which tell the phases of a step that is replayed


class Trainer:
    """Model, data and optimizers of one rank, and the training loop.

    Args:
        received: signals received so far; grows during training.

    Attributes:
        epoch: current epoch, from 1. step: steps done in this epoch.
        graph: the captured step, with `step_graph`.
    """

    def __init__(self, config: RunConfig, ranks: Ranks, recorder: Recorder, received: Sequence[Signals] = ()) -> None:
        begun = time.perf_counter()
        self.config = config
        self.ranks = ranks
        self.recorder = recorder
        device = ranks.device
        randomness.seed(config.seed)
        self.workload: Workload = resolve(config)
        self.model: nn.Module = self.workload.model().to(device)
        randomness.seed(config.seed + 1_000_003 * (ranks.rank + 1))  # dropout differs between ranks
        if config.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        global_batch, _ = config.batches(ranks.world_size)
        self.sampler = Sampler(
            len(self.workload.train),
            global_batch,
            rank=ranks.rank,
            world_size=ranks.world_size,
            seed=config.seed,
            steps=config.steps_per_epoch,
        )
        self.loader = self._new_loader()
        if config.warmup_steps and ranks.is_main:
            self._count_operations()
        if config.activation_checkpointing:
            checkpoint_activations(self.model)
        self.compiled = compilation.Compiled(self.model, config)
        self.peak_lr = config.scaled_lr(global_batch)
        recorder.of_means = self.workload.finish
        self.strategy = self._new_strategy()
        self.evaluation = Evaluation(self.strategy.model, self.workload, config, ranks, self.strategy)
        self.graph: StepGraph | None = None
        self._fresh_optimizer()
        self.checkpoints = Checkpoints(recorder.path / CHECKPOINTS, recorder.remark)
        self.policy = CheckpointPolicy(
            config, ranks, received, lambda: self.checkpoints.busy, lambda: time.monotonic() - recorder.waited
        )
        self.epoch, self.step = 1, 0
        recorder.expect(config.epochs, len(self.sampler))
        recorder.facts |= {
            "unit": self.workload.unit or None,
            "parameters": sum(p.numel() for p in self.model.parameters() if p.requires_grad),
            "train_samples": len(self.workload.train),
            "test_samples": len(self.workload.test),
            "dropped_samples": self.sampler.dropped,
            "setup_seconds": time.perf_counter() - begun,
        }
        ranks.limit()

    def _new_strategy(self) -> Strategy:
        return spread(self.model, self.config, self.ranks)

    def _new_loader(self) -> Loader:
        return Loader(self.workload.train, self.workload, self.config, self.ranks.device)

    def run(self) -> None:
        """Warm up, resume from a checkpoint if there is one, then train and evaluate epoch by epoch."""
        config = self.config
        try:
            self._warm_up()
            self.compiled.warmed_up()
            self._resume()
            if config.step_graph:
                self._capture()
            while self.epoch <= config.epochs:
                self._act_on(self.policy.between_epochs(self.epoch - 1))
                if self.step < len(self.sampler):  # otherwise the previous attempt stopped during evaluation
                    self._train()
                self.recorder.note(**self._notes())
                self.epoch, self.step = self.epoch + 1, 0
        finally:
            self.checkpoints.wait()
            self.loader.close()
            self.evaluation.close()
            if self.graph:
                self.graph.close()
        self.strategy.close()
        if remark := self.compiled.remark():
            self.recorder.remark(remark)
        if config.save_weights:
            weights = self.strategy.weights()
            if self.ranks.is_main:
                atomic.write_file(self.recorder.path / "weights.pt", lambda file: torch.save(weights, file))

    def _train(self) -> None:
        """Run the remaining steps of the current epoch."""
        self.strategy.wrapped.train()
        load = self.loader.parts if self.graph else self.loader.batches
        batches = load(self.sampler.epoch(self.epoch, self.step), self.epoch, self.step)
        self.policy.begin()
        for batch in self.recorder.epoch(batches):
            self.train_on(*batch)
            self.step += 1
            if self.step < len(self.sampler):
                self._act_on(self.policy.between_steps())

    def _notes(self) -> dict[str, float]:
        notes = {"dropped_samples": self.sampler.dropped, **self.strategy.counters()}
        every = self.config.evaluate_every
        if every and (self.epoch % every == 0 or self.epoch == self.config.epochs):
            notes |= self.evaluate()
        return notes

    def train_on(self, inputs: Any, targets: Any) -> None:
        """Run and record one step on one batch; with `graph`, on a part of the loader."""
        lr = self._next_lr()
        if self.graph:
            samples = self._samples
            loss, sums = self.graph((inputs, targets))
        else:
            samples = batch_size(targets)
            loss, sums = self._learn(inputs, targets, self.recorder.lap)
        self.recorder.step(samples=samples, loss=loss, lr=lr, **sums)

    def _learn(
        self, inputs: Any, targets: Any, lap: Callable[[str], None] = lambda phase: None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run one optimizer step and return (mean loss, sums of metrics) over the batch.

        With `accumulate`, gradients of equal micro-batches are averaged. Metrics of a micro-batch are timed as part of the
        phase that follows: the next forward pass, or the optimizer after the last one.
        """
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        parts = self.config.accumulate
        losses = []
        sums = {}
        if self.workload.count:
            sums[UNITS] = self.workload.count(inputs, targets)
        for number, (part_inputs, part_targets) in enumerate(microbatches((inputs, targets), parts), 1):
            with self.strategy.backward(last=number == parts):
                with precision.autocast(self.config.precision, self.ranks.device):
                    outputs = self.workload.forward(self.strategy.wrapped, part_inputs)
                    loss = self.workload.loss(outputs, part_targets)
                    loss = loss / parts if parts > 1 else loss
                lap("forward")
                self.scaler.scale(loss).backward()
            lap("backward")
            losses.append(loss.detach())
            with torch.no_grad():
                for name, value in self.workload.sums(outputs, part_targets).items():
                    sums[name] = sums[name] + value if name in sums else value
        if self.config.clip_norm:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()
        return sum(losses[1:], losses[0]), sums

    def evaluate(self) -> dict[str, float]:
        """Return loss and metrics over every test sample, and the duration. A run may stop between two batches."""
        device = self.ranks.device
        before = randomness.take(device)

        def stop_if_requested() -> None:
            if request := self.policy.in_evaluation():
                randomness.put(before, device)  # a resumed run repeats the whole evaluation
                self._act_on(request)

        self.policy.begin()
        return self.evaluation.run(after_batch=stop_if_requested)

    def _warm_up(self) -> None:
        """Run `warmup_steps` steps, then restore weights, buffers, random state and optimizer.

        This keeps one-time costs out of the measurement: kernel selection and compilation, buffer allocation, and DDP's
        rebuilding of its buckets in gradient order.
        """
        begun = time.perf_counter()
        steps = self.config.warmup_steps
        if self.config.step_graph:
            steps = max(steps, WARM_UP)
        if steps:
            weights = self.strategy.keep()
            before = randomness.take(self.ranks.device)
            self.strategy.wrapped.train()
            batches = self.loader.batches([*itertools.islice(itertools.cycle(self.sampler.epoch(1)), steps)], epoch=0)
            shortest = math.inf
            clock = StepClock(self.ranks.device, phase_every=1)
            for inputs, targets in batches:
                clock.lap("data")
                started = time.process_time()
                self._learn(inputs, targets, clock.lap)
                shortest = min(shortest, time.process_time() - started)
                clock.step()
                self.strategy.require_gradients()
            self.ranks.require_periods(shortest)
            self.strategy.put_back(weights)
            randomness.put(before, self.ranks.device)
            if self.config.step_graph:
                self._note_eager_steps(clock)
                zero_state(self.optimizers)
                self.scaler = precision.grad_scaler(self.config.precision, self.ranks.device)
            else:
                self._fresh_optimizer()
        self.ranks.barrier()
        # While cuDNN tries its kernels, their workspaces exceed training's memory.
        memory.reset_peak(self.ranks.device)
        self.recorder.facts["warmup_seconds"] = time.perf_counter() - begun

    def _note_eager_steps(self, clock: StepClock) -> None:
        """Record the phases of the last warm-up steps: a replay has none."""
        self.ranks.synchronize()
        steps = clock.finish()[-EAGER_STEPS:]
        phases = {name: statistics.median(step.phases[name] for step in steps) for name in steps[0].phases}
        self.recorder.facts["step_graph"] = {
            "warmup_steps": clock.steps,
            "eager_steps": len(steps),
            "eager_phases": phases,
        }

    def _capture(self) -> None:
        """Capture the step. One replay, which moves the graph to the device, is undone."""
        begun = time.perf_counter()
        device = self.ranks.device
        self.scaler.scale(torch.zeros((), device=device))  # creates its scale, which a replay would create again
        weights = self.strategy.keep()
        random_state = randomness.take(device)
        scale = self.scaler.state_dict()
        state = on_host(state_tensors(self.optimizers))  # a copy on the device would count as training's memory
        self.capture(next(self.loader.parts(itertools.islice(self.sampler.epoch(1), 1), epoch=0)))
        for value, former in zip(state_tensors(self.optimizers), state, strict=True):
            value.copy_(former)
        self.strategy.put_back(weights)
        self.scaler.load_state_dict(scale)
        randomness.put(random_state, device)
        self.ranks.barrier()
        self.recorder.facts["step_graph"]["capture_seconds"] = time.perf_counter() - begun

    def capture(self, part: Batch) -> None:
        """Capture the step on a part of the loader, and run it once; later steps replay it.

        Raises:
            WorkloadError: the step cannot be captured.
        """
        self._samples = batch_size(self.loader.finish(*part)[1])
        self.graph = StepGraph(
            lambda inputs: self._learn(*self.loader.finish(*inputs)), part, timeout=self.config.collective_timeout
        )
        self.graph(part)

    def _count_operations(self) -> None:
        """Count operations of the plain model, before it is compiled, sharded or checkpointed."""
        before = randomness.take(self.ranks.device)
        batch = self._first_batch()
        try:
            self.recorder.facts["flops_per_sample"] = operations.per_sample(self.workload, self.model, batch)
        except Exception as error:  # raised by the user's model, which may still train
            why = str(error).strip().partition("\n")[0]
            self.recorder.remark(f"the model's operations were not counted, so there is no MFU: {why}")
        randomness.put(before, self.ranks.device)

    def _first_batch(self) -> Batch:
        """A batch of tensors, for the plain model."""
        (batch,) = self.loader.batches(itertools.islice(self.sampler.epoch(1), 1), epoch=0)
        return batch

    def _fresh_optimizer(self) -> None:
        optimizers = self.workload.optimizers(self.model, self.config, self.peak_lr)
        self.optimizers = [self.strategy.optimizer(optimizer) for optimizer in optimizers]
        self._peak_lrs = [float(group["lr"]) for group in self._groups()]
        self.scaler = precision.grad_scaler(self.config.precision, self.ranks.device)
        if self.scaler.is_enabled():
            optim.start_momentum(self.optimizers)
        if self.config.step_graph:
            for optimizer in self.optimizers:
                require_capturable(optimizer)
            self._share_lr()

    def _groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def _share_lr(self) -> None:
        """Let the optimizers read their learning rates on the device, where they change without the host."""
        for group, peak in zip(self._groups(), self._peak_lrs, strict=True):
            group["lr"] = torch.tensor(peak, device=self.ranks.device)
            if "capturable" in group:
                group["capturable"] = True

    @property
    def steps_done(self) -> int:
        """Steps done over all epochs."""
        return (self.epoch - 1) * len(self.sampler) + self.step

    def _next_lr(self) -> float:
        """Set the next step's learning rates, and return the first. A torch scheduler would warn about steps that fp16 scaling
        skips."""
        per_epoch = len(self.sampler)
        total = per_epoch * self.config.epochs
        factor = self.workload.rate(self.steps_done, total, per_epoch, self.config)
        return self._set_lr(factor)

    def _set_lr(self, factor: float) -> float:
        """Set each group's learning rate to `factor` of its peak; returns the first one's."""
        for group, peak in zip(self._groups(), self._peak_lrs, strict=True):
            if self.config.step_graph:
                group["lr"].fill_(peak * factor)
            else:
                group["lr"] = peak * factor
        return self._peak_lrs[0] * factor

    # -- checkpoints ---------------------------------------------------------------------------------------

    def _act_on(self, request: StopRequest) -> None:
        """Write the requested checkpoint; if the request is to stop, raise `Stopped` once it is on disk.

        Raises:
            CheckpointError: the checkpoint before stopping could not be written.
        """
        if not request:
            return
        with self.recorder.paused():
            state = self.state()
            if self.ranks.is_main:
                self.checkpoints.write(self.steps_done, state)
        if request > StopRequest.CHECKPOINT:
            problem = self.ranks.broadcast(self.checkpoints.wait())
            stopped = signals.Stopped(request.signal, self.epoch, self.step)
            if problem:
                raise CheckpointError(f"{stopped.where}, but its checkpoint could not be written: {problem}")
            raise stopped
        self.policy.taken(self.epoch - 1)

    def state(self) -> dict[str, Any] | None:
        """Return everything a resume needs, on rank 0's host; None on other ranks. Collective; call it while paused."""
        strategy = self.strategy
        rank_state = {"random": randomness.take(self.ranks.device), "recorder": self.recorder.own_state()}
        everyone = self.ranks.gather(rank_state | {"strategy": strategy.own_state()})
        model = strategy.weights()
        optimizers = [strategy.optimizer_state(optimizer) for optimizer in self.optimizers]
        if not self.ranks.is_main:
            return None
        return {
            "epoch": self.epoch,
            "step": self.step,
            "model": model,
            "optimizers": optimizers,
            "scaler": self.scaler.state_dict(),
            "recorder": on_host(self.recorder.state()),
            "ranks": everyone,
        }

    def _resume(self) -> None:
        """Load the newest good checkpoint, if there is one. Collective; called after the warm-up.

        Raises:
            CheckpointError: the checkpoint is of another model or another number of ranks.
        """
        newest = self.checkpoints.newest() if self.ranks.is_main else None
        path = self.ranks.broadcast(newest and newest[0])
        if path is None:
            return
        state = newest[1] if newest else read_checkpoint(path)
        try:
            rank_state = state["ranks"][self.ranks.rank]
            for optimizer, optimizer_state in zip(self.optimizers, state["optimizers"], strict=True):
                self.strategy.load_optimizer_state(optimizer, optimizer_state)
            self.strategy.load_weights(state["model"])
            self.strategy.load_own_state(rank_state["strategy"])
            self.scaler.load_state_dict(state["scaler"])
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint does not match this model and optimizer; redo the run to start from the beginning: {error}"
            ) from error
        if self.config.step_graph:
            self._share_lr()
        self.epoch, self.step = state["epoch"], state["step"]
        self.recorder.restore(state["recorder"], rank_state["recorder"], epoch=self.epoch, step=self.step)
        self.recorder.expect(self.config.epochs, len(self.sampler), done=self.steps_done)
        self.policy.taken(self.epoch - 1)
        randomness.put(rank_state["random"], self.ranks.device)
        self.recorder.remark(f"continued at epoch {self.epoch}, step {self.step}, from {path.name}")
