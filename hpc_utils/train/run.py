"""`train(config)`: one run from its configuration to its records, on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import launcher, records, signals, source_code
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records.folder import AlreadyComplete, require_same_request
from hpc_utils.records.identity import measured

from . import compilation, loop, precision
from .ranks import setup
from .recorder import Recorder
from .resolve import builder, is_loop
from .run_writer import launched_folder

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """A finished run: its folder, and whether this process is rank 0."""

    path: Path
    is_main: bool = True

    @property
    def run_id(self) -> str:
        return self.path.name

    def tables(self) -> dict[str, pd.DataFrame | dict[str, Any]]:
        """{"run", "epochs", "steps", "ranks"} as `records.load_run` gives them."""
        return records.load_run(self.path)


def train(config: RunConfig, *, redo: bool = False) -> Result:
    """Train and record the run that `config` describes. Every rank calls it.

    A complete run is not trained again unless `redo` is set: its records are returned. An interrupted run continues
    from its last good checkpoint.

    Raises:
        ConfigError, WorkloadError, DataError: before training starts.
        NonFiniteLoss: the loss became NaN or infinite.
        Stopped: SIGUSR1 or SIGTERM was received and a checkpoint is on disk.
        CheckpointError: the final checkpoint could not be written, or the checkpoint to resume from does not match.
    """
    folder = launched_folder()
    require_same_request(folder, config.model_dump())
    if config.link_gbit is not None and folder is None:
        raise ConfigError("link_gbit: only `hpc submit` on a rehearsal cluster limits the links")
    exact = precision.matmul_precision(config.precision, deterministic=config.deterministic)
    with setup(config, launcher.find_launcher(config.workload)) as ranks, exact, signals.listen() as received:
        compilation.require(config, ranks.device)
        # A user's own workload is refused before anything is written.
        workload_builder = builder(config) if source_code.is_own(config.workload) else None
        recorder = Recorder(
            config.workload,
            global_batch=config.batches(ranks.world_size)[0],
            parameters=measured(config, ranks.world_size),
            ranks=ranks,
            redo=redo,
            sources=source_code.files(config.workload),
        )
        config = config.model_copy(update={"precision": precision.supported(config.precision, ranks.device)})
        recorder.facts["precision"] = config.precision
        try:
            with recorder:
                if workload_builder and is_loop(workload_builder.func):
                    workload_builder().run(ranks, recorder, received)
                else:
                    loop.Trainer(config, ranks, recorder, received).run()
        except signals.Stopped:
            ranks.barrier()  # torchrun ends all ranks when one leaves: wait until rank 0 has closed its records
            raise
        except AlreadyComplete as done:
            if ranks.is_main:
                print(f"{done}: using its records (set redo=True or another repeat to measure again)\n{done.path}")
            return Result(done.path, ranks.is_main)
        return Result(recorder.path, ranks.is_main)
