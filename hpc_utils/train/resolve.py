"""Builds the workload of a configuration: a built-in one, or the user's `module:function`."""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

from hpc_utils import source_code, toml_config
from hpc_utils.config import RunConfig
from hpc_utils.records.identity import changed

from . import optim, vision
from .workload import Loop, Workload, WorkloadError

OPTIMIZER_OPTIONS = {"optimizer", "fused_optimizer", "momentum", "nesterov", "weight_decay", "weight_decay_on"}
SCHEDULE_OPTIONS = {"schedule", "step_size", "gamma", "lr_warmup_epochs"}


def resolve(config: RunConfig) -> Workload:
    """Build the workload that `config` names.

    Raises:
        WorkloadError: there is no such workload, or the function does not return one.
    """
    if not source_code.is_own(config.workload):
        return vision.workload(config)
    workload = builder(config)()
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"{config.workload} returned {type(workload).__name__}; expected hpc_utils.train.Workload"
        )
    given = changed(config.model_dump()).keys()
    for part, built_in, options in (
        ("optimizer", optim.build, OPTIMIZER_OPTIONS),
        ("schedule", optim.lr_factor, SCHEDULE_OPTIONS),
    ):
        if getattr(workload, part) is not built_in and (ignored := sorted(options & given)):
            raise WorkloadError(
                f"{', '.join(ignored)}: {config.workload} has its own {part}: use an argument of its function "
                f"(workload_args.{ignored[0]})"
            )
    return workload


def builder(config: RunConfig) -> functools.partial:
    """Import the function of the user's workload, or the class of its loop, with its arguments; the working folder comes first on
    the path, as with `python`.

    Raises:
        WorkloadError: it cannot be imported, does not take `workload_args`, or does not use an option that is given.
    """
    name = config.workload
    if source_code.is_script(name):
        raise WorkloadError(f"{name} is a script with a loop of its own: `hpc run {name}` starts it")
    try:
        function = source_code.load_object(name)
    except (Exception, SystemExit) as error:
        raise WorkloadError(f"workload {name!r}: {_fault(name, error)}") from error
    if not callable(function):
        raise WorkloadError(f"workload {name!r} is not a function that returns a Workload")
    if is_loop(function) and (unused := changed(config.model_dump()).keys() - function.options):
        raise WorkloadError(
            f"{name} does not use {', '.join(sorted(unused))}: leave {'it' if len(unused) == 1 else 'them'} out"
        )
    if config.parallel == "own" and not is_loop(function):
        raise WorkloadError(
            f"{name} is no loop of its own: parallel=own is for subclasses of hpc_utils.train.workload.Loop"
        )
    if is_loop(function) and function.launcher and config.parallel != "own":
        raise WorkloadError(f"{name} distributes its ranks itself: use parallel=own")
    signature = inspect.signature(function)
    arguments = ({"config": config} if "config" in signature.parameters else {}) | config.workload_args
    try:
        signature.bind(**arguments)
    except TypeError as error:
        suggestions = [
            toml_config.nearest(argument, signature.parameters)
            for argument in arguments
            if argument not in signature.parameters
        ]
        hint = f"; did you mean {suggestions[0]}?" if any(suggestions) else ""
        raise WorkloadError(f"{name}{signature} does not take these workload_args: {error}{hint}") from None
    return functools.partial(function, **arguments)


def is_loop(function: Callable) -> bool:
    """Whether the workload of that name trains by itself."""
    return isinstance(function, type) and issubclass(function, Loop)


def _fault(name: str, error: BaseException) -> str:
    """Why `name` was not imported, in one line."""
    module, _, function = name.partition(":")
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        suggestion = toml_config.nearest(module, (path.stem for path in Path.cwd().glob("*.py")))
        remedy = (
            f"did you mean {suggestion}?"
            if suggestion
            else "run this in the module's folder, or add that to PYTHONPATH"
        )
        return f"no module {error.name!r} in {Path.cwd()} or PYTHONPATH: {remedy}"
    if partial_module := sys.modules.get(module):  # a module that fails to import is not kept
        functions = dict(inspect.getmembers(partial_module, inspect.isfunction))
        return f"{partial_module.__file__} has no {function!r}: {toml_config.hint(function, functions)}"
    installed = (*sysconfig.get_paths().values(), "<", __file__)
    user_frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(installed)
    ]
    place = f"{user_frames[-1].filename}:{user_frames[-1].lineno}: " if user_frames else ""
    return f"{place}{type(error).__name__}: {error}".splitlines()[0]
