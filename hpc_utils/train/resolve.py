"""Which workload a configuration names: one of ours, or the user's own `module:function`."""

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
        WorkloadError: no such workload, or what the function returned is none.
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
            f"fused_optimizer=true: {config.workload} brings its own optimizer; pass fused=True there, and "
            f"leave this option off"
        )
    return workload


def load_function(name: str) -> Callable[..., Workload]:
    """The function behind `module:function`; the working folder is looked in first, as `python` does."""
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
        raise  # the user's module is there; something that it imports is not
    function = getattr(module, function_name, None)
    if isinstance(function, Workload):
        raise WorkloadError(f"workload {name!r} is a Workload; name the function that makes it, called on every rank")
    if not callable(function):
        raise WorkloadError(f"workload {name!r}: {module_name} has no function {function_name!r}")
    return function


def source_files(config: RunConfig) -> list[Path]:
    """The file of the user's own workload, so that its digest is part of the run's provenance.

    Raises:
        WorkloadError: there is no such module or function.
    """
    if ":" not in config.workload:
        return []
    path = inspect.getsourcefile(inspect.unwrap(load_function(config.workload)))
    return [Path(path)] if path else []
