"""A notebook's parameters: those its tagged cell sets, and every option of `RunConfig`; a script's: its command line."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hpc_utils import paths, source_code, toml_config
from hpc_utils.config import ConfigError, RunConfig, choices, json_or_text, unknown_parameter

TAG = "parameters"
# The options of `RunConfig` that act on a script: by its launcher and recorder. Every other parameter is the script's own.
OF_SCRIPTS = {
    *("parallel", "device", "precision", "threads_per_rank", "global_batch", "batch_per_device", "link_gbit"),
    *("seed", "repeat", "profile", "profile_steps", "monitor_seconds", "phase_every", "collective_timeout"),
}
BATCHES = {"global_batch", "batch_per_device"}


def find_notebook(notebook: Path) -> Path:
    """The notebook or script at that path, here or in the clone, or the notebook of that name among the chapters.

    Raises:
        ConfigError: there is none.
    """
    chapter = [] if notebook.suffix == ".py" else [paths.notebooks() / notebook.with_suffix(".ipynb")]
    for path in (notebook, paths.root() / notebook, *chapter):
        if path.is_file():
            return path
    if not chapter:
        places = dict.fromkeys(map(str, (Path.cwd(), paths.root())))
        raise ConfigError(f"no script {notebook} in {' or '.join(places)}")
    hint = toml_config.hint(notebook.stem, (path.stem for path in paths.notebooks().glob("*.ipynb")))
    raise ConfigError(f"no notebook {notebook} here or in {paths.notebooks()}: {hint}")


def defaults(notebook: Path) -> dict[str, Any]:
    """What the cell tagged `parameters` sets; empty without such a cell.

    Raises:
        ConfigError: it is no notebook, or the cell does more than set plain values.
    """
    try:
        cells = json.loads(Path(notebook).read_text())["cells"]
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{notebook} is not a notebook of format 4") from None
    for cell in cells:
        if cell["cell_type"] == "code" and TAG in cell.get("metadata", {}).get("tags", ()):
            return _assignments("".join(cell["source"]), notebook)
    return {}


def of_chapter(notebook: Path, overrides: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """(study, "" for a whole result set; parameters to inject) of a chapter that reads results.

    Raises:
        ConfigError: the notebook trains instead, does not know a parameter, or the parameter has another type.
    """
    notebook_defaults = defaults(notebook)
    if trains := sorted(notebook_defaults.keys() & RunConfig.model_fields.keys()):
        raise ConfigError(f"{notebook} reads no results, it trains (parameter {trains[0]}): `hpc run` executes it")
    _require_known(overrides, notebook_defaults)
    inject = {name: _like(notebook_defaults[name], value, name) for name, value in overrides.items()}
    if notebook_defaults.get("study") and not inject.get("study", notebook_defaults["study"]):
        raise ConfigError(
            f"{notebook} is about one study: leave `study` out ({notebook_defaults['study']}), or name another"
        )
    return inject.get("study", notebook_defaults.get("study", "")), inject


def resolve(notebook: Path, overrides: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """(the run's configuration, the values to inject): the notebook's defaults with `overrides` on top.

    Raises:
        ConfigError: a parameter that neither the notebook nor `RunConfig` knows, an ill-typed one, or a chapter of a
            study.
    """
    notebook_defaults = defaults(notebook)
    options = RunConfig.model_fields
    if "study" in notebook_defaults or "Chapter(" in Path(notebook).read_text():
        raise ConfigError(f"{notebook} trains nothing, it reads results: `hpc chapter {notebook.stem}` executes it")
    _require_known(overrides, {*notebook_defaults, *options})
    # Asking for one kind of batch replaces the notebook's default of the other kind.
    sets_batch = any(overrides.get(name) is not None for name in BATCHES)
    replaced = {name: None for name in BATCHES - set(overrides)} if sets_batch else {}
    values = notebook_defaults | replaced | dict(overrides)
    config = RunConfig(**{name: value for name, value in values.items() if name in options})
    inject = {name: getattr(config, name) for name in {*overrides, *replaced} if name in options}
    inject |= {
        name: _like(notebook_defaults[name], value, name) for name, value in overrides.items() if name not in options
    }
    return config, inject


def of_script(script: Path, overrides: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """(configuration of a run of `script`, the parameters that were given): its own parameters are in `workload_args`.

    Batch and precision are the defaults of its options --global_batch and --precision, if none are given.

    Raises:
        ConfigError: the script is in no folder in which modules are found, is no Python, has no recorder, or no option of a
            parameter's name; an ill-typed option of the launch.
    """
    workload = source_code.script_name(script)
    if workload is None:
        raise ConfigError(
            f"{script} is neither below {Path.cwd()} nor on PYTHONPATH: run this in the script's folder"
        )
    try:
        script_options = source_code.declared_options(workload)
    except SyntaxError as error:
        raise ConfigError(f"{error.filename}, line {error.lineno}: {error.msg}") from None
    if not any("Recorder" in file.read_text() for file in source_code.files(workload)):
        raise ConfigError(f"{script} does not record: use hpc_utils.train.Recorder (docs/your-model.md)")
    given = {name: value for name, value in overrides.items() if name in OF_SCRIPTS and value is not None}
    calls = (node.func for node in ast.walk(source_code.syntax(script)) if isinstance(node, ast.Call))
    if any(re.search(r"\b(mp|multiprocessing)\.spawn$", ast.unparse(call)) for call in calls):
        raise ConfigError(
            f"{script} starts its own ranks (spawn): `hpc run --nproc N` starts them, so call their function directly"
        )
    own_values = {name: value for name, value in overrides.items() if name not in OF_SCRIPTS}
    own_values |= own_values.pop("workload_args", {})
    passed = {"global_batch", *own_values, *({"precision"} & given.keys())}
    if unknown := sorted(passed - script_options.keys()):
        name = unknown[0]
        hint = (
            f"add parser.add_argument({f'--{name}'!r}, ...)"
            if name in OF_SCRIPTS
            else toml_config.hint(name, OF_SCRIPTS | script_options.keys())
        )
        raise ConfigError(f"{script} and the modules beside it declare no option --{name}: {hint}")
    if BATCHES.isdisjoint(given):
        given["global_batch"] = script_options["global_batch"]
        if given["global_batch"] is None:
            raise ConfigError(
                f"{script}: --global_batch has no plain default: give -p global_batch=N, or write one (default=8)"
            )
    if (precision := script_options.get("precision")) is not None:
        given.setdefault("precision", precision)
        if given["precision"] == precision and precision not in choices("precision"):
            raise ConfigError(
                f"{script}: the default of --precision, {precision!r}, is none of {', '.join(choices('precision'))}: use these names, or "
                "another name for the option"
            )
    own_values = {
        name: json_or_text(value) if isinstance(value, str) else value for name, value in own_values.items()
    }
    return RunConfig(workload=workload, workload_args=own_values, **given), dict(overrides)


def command_line(global_batch: int, config: RunConfig, given: Collection[str]) -> list[str]:
    """The arguments of a script: its batch over all ranks, the seed if it has such an option, the precision if that was given, and
    its own parameters.

    True is `--name`, false `--no-name`, a list several values, as argparse has it.
    """
    values: dict[str, Any] = {"global_batch": global_batch}
    declared = source_code.declared_options(config.workload)
    if "seed" in declared:
        values["seed"] = config.seed
    if "precision" in given:
        values["precision"] = config.precision
    words = []
    for name, value in (values | config.workload_args).items():
        if isinstance(value, bool):
            is_default = declared.get(name) is value  # of `action="store_true"`, which has no --no-NAME
            words += [f"--{name}"] if value else [] if is_default else [f"--no-{name}"]
        elif isinstance(value, list):
            words += [f"--{name}", *map(str, value)]
        else:
            words.append(f"--{name}={value}")
    return words


def options(parameters: Mapping[str, Any]) -> list[str]:
    """The options of `hpc` that give these parameters."""
    return [
        f"-p{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in parameters.items()
    ]


def _require_known(overrides: Mapping[str, Any], known_names: Collection[str]) -> None:
    if unknown := [name for name in overrides if name not in known_names]:
        raise ConfigError("\n".join(unknown_parameter(name, known_names) for name in unknown))


def _assignments(source: str, notebook: Path) -> dict[str, Any]:
    values = {}
    try:
        for statement in ast.parse(source).body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
                values |= {target.id: ast.literal_eval(statement.value) for target in targets}
    except SyntaxError as error:
        raise ConfigError(f"{notebook}: the parameters cell, line {error.lineno}: {error.msg}") from None
    except (ValueError, AttributeError):
        line = ast.unparse(statement)
        raise ConfigError(f"{notebook}: the parameters cell must set plain values, not `{line}`") from None
    return values


def _like(default: Any, value: Any, name: str) -> Any:
    """`value` as the type of the notebook's own default."""
    if default is None or isinstance(value, type(default)):
        return value
    adapter = TypeAdapter(type(default))
    try:
        value = adapter.validate_json(value) if isinstance(default, list | dict) else adapter.validate_python(value)
        json.dumps(value, allow_nan=False)  # values travel to the ranks as JSON, which has no NaN
    except (ValueError, TypeError):
        kind = type(default).__name__
        raise ConfigError(f"{name}={value!r}: expected {kind}, as the notebook's {name} = {default!r}") from None
    return value
