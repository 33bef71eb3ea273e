"""When a run is checkpointed, stopped and continued: at the same step on all ranks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from signal import Signals
from typing import TYPE_CHECKING

from hpc_utils.config import RunConfig
from hpc_utils.records.folder import CHECKPOINTS
from hpc_utils.signals import Stopped, strongest

from .agreement import Agreement, Wish
from .checkpoint import CheckpointError, Checkpoints, read
from .ranks import Ranks
from .recorder import Recorder

if TYPE_CHECKING:
    from .loop import Trainer


class Keeper:
    """Asked by the trainer wherever its state is whole: between steps, epochs and evaluation batches.

    Args:
        heard: the signals that have arrived; grows while training.
    """

    def __init__(self, config: RunConfig, ranks: Ranks, recorder: Recorder, heard: Sequence[Signals]) -> None:
        self._config, self._ranks, self._recorder, self._heard = config, ranks, recorder, heard
        self._checkpoints = Checkpoints(recorder.path / CHECKPOINTS, recorder.remark) if ranks.is_main else None
        self._steps, self._batches = Agreement(ranks), Agreement(ranks)
        self._due = False
        self._epochs, self._at = 0, time.monotonic()  # done at the last checkpoint; when that was

    def resume(self, trainer: Trainer) -> None:
        """Put the trainer where the newest good checkpoint was taken, if there is one."""
        found = self._checkpoints.newest() if self._checkpoints else None
        path = self._ranks.broadcast(found and found[0])
        if path is None:
            return
        trainer.restore(found[1] if found else read(path))
        self._epochs = trainer.epoch - 1
        self._recorder.remark(f"continued at epoch {trainer.epoch}, step {trainer.step}, from {path.name}")

    def begin(self) -> None:
        """Steps, or evaluation batches, follow each other from now on."""
        self._steps.begin()
        self._batches.begin()

    def between_steps(self, trainer: Trainer) -> None:
        """Checkpoint if it is time to; if a rank was asked to stop, checkpoint and raise `Stopped`."""
        if wish := self._steps.reach(self._wish()):
            self._heed(wish, trainer)

    def between_epochs(self, trainer: Trainer) -> None:
        """The same, where ranks wait for each other anyway."""
        every = self._config.checkpoint_every
        self._due |= bool(every) and trainer.step == 0 and trainer.epoch - 1 - self._epochs >= every
        if wish := self._steps.reach_now(self._wish()):
            self._heed(wish, trainer)

    def stops_evaluation(self) -> Wish:
        """Between evaluation batches: the wish to stop, if a rank has it; `stop` then does."""
        heard = strongest(self._heard)
        return self._batches.reach(Wish.of(heard) if heard else Wish.NOTHING)

    def stop(self, wish: Wish, trainer: Trainer) -> None:
        """Checkpoint, and raise `Stopped` once that is safely on disk.

        Raises:
            CheckpointError: it could not be written.
        """
        self._checkpoint(trainer)
        problem = self._ranks.broadcast(self._checkpoints.wait() if self._checkpoints else None)
        stopped = Stopped(wish.signal, trainer.epoch, trainer.step)
        if problem:
            raise CheckpointError(f"{stopped.where}, but its checkpoint could not be written: {problem}")
        raise stopped

    def close(self) -> None:
        """Finish what is being written."""
        if self._checkpoints:
            self._checkpoints.wait()

    def _wish(self) -> Wish:
        if heard := strongest(self._heard):
            return Wish.of(heard)
        if self._checkpoints is None:  # rank 0 alone knows whether the last one is still being written
            return Wish.NOTHING
        minutes = self._config.checkpoint_minutes
        self._due |= bool(minutes) and time.monotonic() - self._at >= 60 * minutes
        return Wish.CHECKPOINT if self._due and not self._checkpoints.busy else Wish.NOTHING

    def _heed(self, wish: Wish, trainer: Trainer) -> None:
        if wish > Wish.CHECKPOINT:
            self.stop(wish, trainer)
        self._checkpoint(trainer)
        self._due = False
        self._epochs, self._at = trainer.epoch - 1, time.monotonic()
        self._steps.begin()

    def _checkpoint(self, trainer: Trainer) -> None:
        with self._recorder.paused():
            state = trainer.state()
            if self._checkpoints:
                self._checkpoints.write(trainer.steps_done, state)
