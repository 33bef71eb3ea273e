"""The first draft of a study file (`templates/study.toml.j2`): scaling of the user's workload or script on this machine's
devices."""

from __future__ import annotations

import contextlib
import math
import re
import time
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance
from hpc_utils.config import RunConfig
from hpc_utils.launch import core_lock, job_environment, parameters
from hpc_utils.launch.study_file import StudyError
from hpc_utils.plural import counted
from hpc_utils.records import atomic

if TYPE_CHECKING:
    from hpc_utils.train import Workload

TEMPLATE = Path(__file__).parent / "templates/study.toml.j2"
MOST_RANKS = 8
MOST_SAMPLES = 256
EPOCH = 1.0  # s that an epoch takes about
STEPS = (10, 200)  # of an epoch: at least, at most


def new(name: str, workload: str) -> Path:
    """Write the file of the study `name` of a workload or script (`source_code.is_own`), and return its path.

    Raises:
        StudyError: there is such a file already, the name is not valid, or a step of the workload fails.
        ConfigError, WorkloadError: there is no such workload or script.
    """
    path = Path(name) if name.endswith(".toml") else paths.studies() / f"{name}.toml"
    if not re.fullmatch(r"[a-z][a-z0-9-]*", path.stem):
        raise StudyError(
            f"{path.stem!r}: a study's name is lower-case letters, digits and -, and begins with a letter"
        )
    if path.exists():
        raise StudyError(f"{path} exists already: give another name, or remove it")
    atomic.write_text(path, draft(workload))
    return path


def draft(workload: str, devices: int | None = None) -> str:
    """The file's text for a machine of `devices` (by default this one): at most 8 ranks, and batches that they
    divide."""
    gpus = len(provenance.hardware().gpus)
    devices = devices or gpus or len(provenance.core_groups())
    ranks = [world for world in (1, 2, 4, MOST_RANKS) if world <= devices]
    if is_script := workload.endswith(".py"):
        config, _ = parameters.of_script(parameters.find_notebook(Path(workload)), {})
        described = {"batch": config.batches(1)[0]}
    else:
        described = _of_workload(workload, ranks[-1], on_gpu=bool(gpus))
    return job_environment.render_template(
        TEMPLATE,
        workload=workload,
        today=date.today(),
        machine=counted(gpus, "GPU") if gpus else f"{counted(devices, 'core')}; a CPU rank is one of them",
        ranks=ranks,
        most=counted(ranks[-1], "rank"),
        is_script=is_script,
        **described,
    )


def _of_workload(workload: str, most_ranks: int, *, on_gpu: bool) -> dict[str, Any]:
    """What the draft says of a workload, of which two steps are tried."""
    from hpc_utils.train import optim
    from hpc_utils.train.resolve import resolve

    config = RunConfig(workload=workload, parallel="none")
    batch = MOST_SAMPLES
    try:
        built = resolve(config)
        while batch * most_ranks > len(built.train) and batch > most_ranks:
            batch //= 2
        with contextlib.nullcontext() if on_gpu else core_lock.lock_cores(f"a step of {workload}"):
            seconds = _step_seconds(built, config, batch)
    except Exception as error:
        if hasattr(error, "exit_code"):  # a message for users
            raise
        command = f"hpc run {paths.notebooks()}/01_baseline.ipynb -p workload={workload}"
        raise StudyError(f"{workload}: {type(error).__name__}: {error}; `{command}` shows where") from error
    steps = min(max(round(EPOCH / seconds), STEPS[0]), STEPS[1])
    return {
        "batch": batch,
        "steps": steps,
        "seconds": seconds,
        "measures": ["loss", *built.metrics],
        "every_epoch": len(built.test) <= steps * batch,
        "own_optimizer": built.optimizer is not optim.build,
    }


def _step_seconds(workload: Workload, config: RunConfig, batch: int) -> float:
    """Seconds of a step of `batch` samples on one device: of the second one."""
    import torch

    from hpc_utils.train.evaluation import require_sums
    from hpc_utils.train.loader import Loader
    from hpc_utils.train.ranks import setup

    ends = []
    with setup(config) as ranks:
        model = workload.model().to(ranks.device)
        loader = Loader(workload.train, workload, config, ranks.device)
        optimizers = workload.optimizers(model, config, config.lr)
        steps = 10 * STEPS[0]
        for step in range(steps):
            workload.rate(step, steps, STEPS[0], config)
        for inputs, targets in loader.batches([torch.arange(batch)] * 2, 0):
            outputs = workload.forward(model, inputs)
            loss = workload.loss(outputs, targets)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            value = loss.item()  # waits for a GPU
            ends.append(time.perf_counter())
            if not math.isfinite(value):
                raise StudyError(f"{config.workload}: the loss of a batch is {value}; expected a finite number")
            for name, total in workload.sums(outputs, targets).items():
                if (count := torch.as_tensor(total).numel()) != 1:
                    raise StudyError(
                        f"{config.workload}: the metric {name} gives {count} numbers; expected their sum"
                    )
        model.eval()
        tested = Loader(workload.test, workload, config, ranks.device)
        require_sums(workload, tested, torch.arange(len(workload.test)), partial(workload.forward, model))
    return ends[1] - ends[0]
