"""The first draft of a study file (`study_draft.toml.j2`): scaling of the user's workload on this machine's devices."""

from __future__ import annotations

import inspect
import re
from datetime import date
from pathlib import Path

from hpc_utils import provenance
from hpc_utils.config import RunConfig
from hpc_utils.records import atomic

from .study import StudyError, file

MOST_RANKS, MOST_SAMPLES, STEPS = 8, 256, 20


def new(name: str, workload: str) -> Path:
    """Write the file of the study `name`, and return its path.

    Raises:
        StudyError: there is such a file already, or the name is not valid.
        ConfigError, WorkloadError: there is no such workload.
    """
    path = file(name)
    own = path.stem if name.endswith(".toml") else name
    if not re.fullmatch(r"[a-z][a-z0-9-]*", own):
        raise StudyError(f"{own!r}: a study's name is lower-case letters, digits and -, and begins with a letter")
    if path.exists():
        raise StudyError(f"{path} exists already: give another name, or remove it")
    atomic.write_text(path, draft(workload))
    return path


def draft(workload: str, devices: int | None = None) -> str:
    """The file's text for a machine of `devices` (by default this one): at most 8 ranks, and batches that they divide."""
    import jinja2

    from hpc_utils.train import optim
    from hpc_utils.train.resolve import load_function, resolve

    built = resolve(RunConfig(workload=workload))
    taken = inspect.signature(load_function(workload)).parameters if ":" in workload else {}
    gpus = len(provenance.hardware().gpus)
    devices = devices or gpus or len(provenance.core_groups())
    ranks = [world for world in (1, 2, 4, MOST_RANKS) if world <= devices]
    batch = MOST_SAMPLES
    while batch * ranks[-1] > len(built.train) and batch > ranks[-1]:
        batch //= 2
    text = Path(__file__).with_suffix(".toml.j2").read_text()
    return jinja2.Template(text, keep_trailing_newline=True, undefined=jinja2.StrictUndefined).render(
        workload=workload,
        arguments={
            name: own.default for name, own in taken.items() if isinstance(own.default, bool | int | float | str)
        },
        today=date.today(),
        machine=f"{gpus} GPUs" if gpus else f"{devices} cores; a CPU rank is one of them",
        ranks=ranks,
        batch=batch,
        steps=STEPS,
        measures=["loss", *built.metrics],
        every_epoch=len(built.test) <= STEPS * batch,
        own_optimizer=built.optimizer is not optim.build,
    )
