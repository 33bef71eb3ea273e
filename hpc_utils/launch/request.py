"""A run that could be started: resolved from a notebook and parameters, and checked as far as possible beforehand."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_utils import capability, datasets, launcher, paths, profilers, provenance, source_code
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.launcher import Launcher
from hpc_utils.plural import counted
from hpc_utils.records import identity
from hpc_utils.records.folder import state

from . import forkserver, parameters


@dataclass(frozen=True)
class Layout:
    """The layout of ranks on nodes: the same number on each."""

    nodes: int = 1
    ranks_per_node: int = 1

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        return f"{self.nodes}x{self.ranks_per_node}"


@dataclass(frozen=True)
class Request:
    """A run's notebook, configuration and layout, and the folder that is named by its id.

    Attributes:
        notebook: executed by every rank; or a script with a loop of its own. config: the parameters of the training.
        inject: values to inject into the notebook.
        layout: nodes and ranks on each. path: the run's folder. redo: measure from the beginning although it is complete.
    """

    notebook: Path
    config: RunConfig
    inject: Mapping[str, Any]
    layout: Layout
    path: Path
    redo: bool = False

    @property
    def run_id(self) -> str:
        return self.path.name

    @functools.cached_property
    def launcher(self) -> Launcher | None:
        """What starts its ranks in place of torchrun, if its loop brings that."""
        own_launcher = launcher.find_launcher(self.config.workload)
        return own_launcher if own_launcher and own_launcher.starts_ranks else None

    @property
    def is_script(self) -> bool:
        """Whether the ranks execute a script instead of a notebook."""
        return self.notebook.suffix == ".py"

    @property
    def arguments(self) -> list[str]:
        """The command line of a script."""
        global_batch, _ = self.config.batches(self.layout.ranks)
        return parameters.command_line(global_batch, self.config, self.inject)

    @property
    def is_current(self) -> bool:
        """Whether a user's own code, and so the run's id, is as when the request was prepared."""
        return prepare(self.notebook, self.inject, self.layout, needs_data=False).run_id == self.run_id

    @property
    def on_gpus(self) -> bool:
        """Whether the run takes GPUs of this machine."""
        return self.config.device != "cpu" and bool(provenance.hardware().gpus)

    @property
    def warning(self) -> str:
        """Why this machine's times of the run are no measurement: an emulated precision, or more CPU devices than cores; else empty."""
        config = self.config
        if self.on_gpus:
            return ""
        if why := capability.of_cpu(config.precision, bf16=not provenance.emulates_bf16()):
            return f"{config.precision}: {why}"
        ranks = self.layout.ranks_per_node
        cores = len(provenance.core_groups())
        cores_per_rank = config.cores_per_rank or config.threads_per_rank or 1
        if not capability.oversubscribed(ranks, cores_per_rank, cores):
            return ""
        devices = f"{counted(ranks, 'rank')} x {cores_per_rank:g} core(s) on {cores} core(s)"
        return f"oversubscribed: {devices}: excluded from scaling figures"

    @property
    def state(self) -> str:
        return state(self.path)


def prepare(
    notebook: Path,
    overrides: Mapping[str, Any],
    layout: Layout | None = None,
    *,
    hardware: str | None = None,
    needs_data: bool = True,
    imports: bool = True,
) -> Request:
    """Check a request and name its run; nothing is started or written.

    Args:
        hardware: the target hardware, if it is not this machine (`provenance.hardware_id`).
        needs_data: the data set or the user's workload must be here, because the run is to be started.
        imports: this Python imports the user's workload as the ranks do; not that of a container, which has other
            packages.

    Raises:
        ConfigError: unknown, ill-typed or contradictory parameters, a layout that does not divide, or a workload that
            cannot be imported; the data set has no whole batch.
        DataError: the data set is missing or damaged.
    """
    layout = layout or Layout()
    if layout.ranks_per_node < 1 or layout.nodes < 1:
        raise ConfigError(f"a layout of {layout} (nodes x ranks): at least one rank is needed")
    notebook = parameters.find_notebook(notebook)
    is_script = notebook.suffix == ".py"
    config, inject = (parameters.of_script if is_script else parameters.resolve)(notebook, overrides)
    if config.parallel == "none" and layout.ranks > 1:
        raise ConfigError(
            f"parallel='none' is one process: use parallel='ddp', 'zero1' or 'fsdp' for {layout.ranks} ranks"
        )
    if config.profile == "ncu" and layout.ranks > 1:
        raise ConfigError(profilers.ONE_RANK.format(ranks=layout.ranks))
    measured = identity.measured(config, layout.ranks)
    if needs_data and not source_code.is_own(config.workload):
        require_data(config.dataset, paths.data())
        samples = datasets.info(config.dataset).train.count
        if samples < measured["global_batch"] and not config.steps_per_epoch:
            raise ConfigError(
                f"{config.dataset} has {samples} samples, fewer than one global batch: use a smaller one"
            )
    elif needs_data and imports and not is_script:
        require_workload(config.workload, config.parallel, json.dumps(dict.fromkeys(config.workload_args)))
    if not is_script:
        injected = parameters.defaults(notebook) | inject
        measured |= {name: value for name, value in injected.items() if name not in RunConfig.model_fields}
    hardware = hardware or provenance.hardware_id()
    run_id = identity.run_id(measured, nodes=layout.nodes, ranks_per_node=layout.ranks_per_node, hardware=hardware)
    return Request(notebook.absolute(), config, inject, layout, paths.runs() / run_id)


@functools.cache  # once for all runs of a study; a refusal is not remembered
def require_data(dataset: str, folder: Path) -> None:
    """DataError if the data set is not in `folder` (`paths.data()`), whole."""
    for split in ("train", "test"):
        datasets.load(dataset, split)


@functools.cache
def require_workload(workload: str, parallel: str, arguments: str) -> None:
    """ConfigError if the user's `module:function` cannot be imported, or does not take `parallel` or `arguments`, a
    JSON object.

    It is imported in a process of its own, because it needs torch and may do anything.
    """
    with tempfile.NamedTemporaryFile("r") as log:
        check = ("--check", f"workload={workload}", f"parallel={parallel}", f"workload_args={arguments}")
        code = forkserver.run("hpc_utils.train", *check, log=Path(log.name))
        last = log.read().strip().rpartition("\n")[2].removeprefix("error: ")
    if code:
        raise ConfigError(last or f"importing {workload} ended with exit code {code}")
