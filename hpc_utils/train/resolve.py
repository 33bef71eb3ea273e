"""Builds the workload of a configuration: a built-in one, or the user's `module:function`."""

from __future__ import annotations

import importlib
import inspect
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
    module_name, _, function_name = name.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), function_name)):
        raise WorkloadError(f"workload {name!r} is not module:function")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise WorkloadError(
                f"workload {name!r}: no module {module_name!r} in {Path.cwd()} or on PYTHONPATH"
            ) from None
        raise  # the user's module exists, but one of its imports does not
    function = getattr(module, function_name, None)
    if isinstance(function, Workload):
        raise WorkloadError(f"workload {name!r} is a Workload; give the function that returns it")
    if not callable(function):
        raise WorkloadError(f"workload {name!r}: {module_name} has no function {function_name!r}")
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
