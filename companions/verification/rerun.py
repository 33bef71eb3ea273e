"""A run repeated: requested with the same parameters, and trained into a result set of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance, source_code
from hpc_utils.config import RunConfig
from hpc_utils.launch import forkserver, local, parameters
from hpc_utils.launch.request import Layout, Request, prepare
from hpc_utils.plural import counted
from hpc_utils.records import fingerprint, identity
from hpc_utils.records.folder import read_json

if TYPE_CHECKING:
    import pandas as pd


class CannotRerun(ValueError):
    """The run cannot be repeated here; the message has the reason and an alternative."""

    exit_code = 2


def again(run: Path, repeat: int, *, notebook: Path | None = None) -> Request:
    """A request with the parameters of that run, its seed included, as number `repeat`.

    Args:
        run: the run's folder. notebook: what its ranks executed, if that is not one of the compendium's own.

    Raises:
        CannotRerun: it needs what is not here. ConfigError, DataError: as of `request.prepare`.
    """
    request = read_json(run / "request.json")
    record = read_json(run / "run.json")
    if not request:
        raise CannotRerun(
            f"{run.name} was not started by hpc (it has no request.json): run its own program again, then use --against"
        )
    if why := _missing_here(request, record):
        raise CannotRerun(
            f"{run.name} {why}: measure its study again there (`HPC_RESULTS=again hpc submit STUDY --cluster NAME --wait`), "
            f"then compare with `hpc verify {run.name} --against again`"
        )
    is_script = "arguments" in request
    script = is_script and source_code.module_file(request["config"]["workload"])
    path = notebook or script or paths.notebooks() / request["notebook"]
    if not path.is_file():
        raise CannotRerun(
            f"{run.name} executed {request['notebook']}, which is not in {path.parent}: use --notebook FILE"
        )
    if is_script:
        return prepare(
            path, request["parameters"] | {"repeat": repeat}, Layout(record["nodes"], record["ranks_per_node"])
        )
    known_names = RunConfig.model_fields.keys() | parameters.defaults(path).keys()
    # A parameter that was set, and that is unknown by now, is refused, but for former options that had their default.
    given = request["config"] | request["parameters"]
    overrides = {
        name: value
        for name, value in given.items()
        if name in known_names or value not in (None, identity.FORMER.get(name))
    }
    overrides |= {"repeat": repeat}
    if record["device"] == "cpu" and provenance.hardware().gpus:  # "auto" would now take them
        overrides["device"] = "cpu"
    return prepare(path, overrides, Layout(record["nodes"], record["ranks_per_node"]))


def unchanged(run: Path) -> None:
    """Check the run's records against the fingerprints that chapters of its set noted when they read them.

    Raises:
        CannotRerun: its records have changed since.
    """
    for path in sorted((run.parent.parent / "exports").glob("*.json")):
        noted = ((read_json(path) or {}).get("runs") or {}).get(run.name)
        if noted and noted.get("fingerprint") != fingerprint.of_run(run):
            raise CannotRerun(
                f"the records of {run.name} have changed since exports/{path.name} was written: restore them"
            )


def copies(runs: pd.DataFrame, candidates: pd.DataFrame) -> list[str]:
    """The ids of `candidates` that are copies of `runs`: of the same id and start."""
    begun = set(zip(runs.run_id, runs.started, strict=True))
    return [row.run_id for row in candidates.itertuples() if (row.run_id, row.started) in begun]


def execute(
    run: Path,
    repeats: int,
    results: Path,
    *,
    notebook: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Train that run `repeats` times, into the result set `results`; the ids of the new runs.

    A complete run there is measured again; a stopped one continues. `say` is called as each begins.

    Raises:
        CannotRerun: as of `again`, or one of them failed. RunStopped: a signal came; the same call continues.
    """
    if results.absolute() == run.parent.parent.absolute():
        raise CannotRerun(f"{results} holds the run itself, which must stay as it is: choose another folder")
    with paths.results_at(results):
        forkserver.start()
        requests = [again(run, repeat, notebook=notebook) for repeat in range(1, repeats + 1)]
        for number, request in enumerate(requests, 1):
            say(f"[{number}/{repeats}] {request.run_id}, into {results}")
            try:
                with local.follow(request, lines=False) as watch:
                    local.run(replace(request, redo=request.state == "complete"), watch=watch)
            except local.RunStopped:
                raise
            except local.RunFailed as error:
                raise CannotRerun(f"the new run did not complete: {error}") from error
    return [request.run_id for request in requests]


def _missing_here(request: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """What the run needs that this machine lacks; empty if nothing is missing."""
    if record["nodes"] > 1:
        return f"needs {counted(record['nodes'], 'node')}"
    if request["config"].get("link_gbit") is not None:
        return "needs links that can be limited, a rehearsal cluster's"
    gpus = record["ranks_per_node"] if record["device"] in ("cuda", "rocm") else 0
    available = len(provenance.hardware().gpus)
    return f"needs {counted(gpus, 'GPU')}, {available} available" if gpus > available else ""
