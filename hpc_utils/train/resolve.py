"""Builds the workload of a configuration: a built-in one, or the user's `module:function`."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path

from hpc_utils.config import RunConfig

from . import optim, vision
from .workload import Workload, WorkloadError


def resolve(config: RunConfig) -> Workload:
    """Build the workload that `config` names.

    Raises:
        WorkloadError: there is no such workload, or the function does not return one.
    """
    if ":" not in config.workload:
        return vision.workload(config)
    function = load_function(config.workload)
    signature = inspect.signature(function)
    arguments = ({"config": config} if "config" in signature.parameters else {}) | config.workload_args
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise WorkloadError(f"{config.workload}{signature} does not take these workload_args: {error}") from None
    workload = function(**arguments)
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"{config.workload} returned {type(workload).__name__}; expected hpc_utils.train.Workload"
        )
    if config.fused_optimizer and workload.optimizer is not optim.build:
        raise WorkloadError(
            f"fused_optimizer=true: {config.workload} has its own optimizer; pass fused=True there instead"
        )
    return workload


def load_function(name: str) -> Callable[..., Workload]:
    """Import the function `module:function`; the working folder comes first on the path, as with `python`."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise WorkloadError(
            f"workload {name!r} cannot be imported as module:function from {Path.cwd()} or PYTHONPATH: {error}"
        ) from error
    if not callable(function):
        raise WorkloadError(f"workload {name!r} is not a function that returns a Workload")
    return function


def source_files(config: RunConfig) -> list[Path]:
    """Return the source file of the user's workload, whose digest is part of the run's provenance.

    Raises:
        WorkloadError: there is no such module or function.
    """
    if ":" not in config.workload:
        return []
    path = inspect.getsourcefile(inspect.unwrap(load_function(config.workload)))
    return [Path(path)] if path else []
