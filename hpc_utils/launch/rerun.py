"""A run repeated: found in a result set, requested with the same parameters, and trained into a result set of its
own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance, source_code
from hpc_utils.config import RunConfig
from hpc_utils.plural import counted
from hpc_utils.records import StudyIndex, fingerprint, identity, packed, studies
from hpc_utils.records.folder import read_json

from . import forkserver, local, parameters
from .request import Layout, Request, prepare

if TYPE_CHECKING:
    import pandas as pd


class CannotRerun(ValueError):
    """The run cannot be repeated here; the message has the reason and an alternative."""

    exit_code = 2


def find_run(run: str, results: Path | None = None) -> Path:
    """The folder of a run, named by its id, by the last part of it, or by its path.

    Args:
        results: the set to look in; by default the user's own, then the committed ones.

    Raises:
        CannotRerun: there is no such run, or several.
    """
    if read_json(Path(run).absolute() / "run.json") is not None:
        return Path(run).absolute()
    sets = [results] if results else [paths.results(), *sorted(paths.reference().glob("*"))]
    folders = [path for result_set in sets for path in packed.folders(result_set)]
    matches = [path for path in folders if path.name == run] or [
        path for path in folders if path.name.endswith(f"-{run}")
    ]
    if len(names := sorted({path.name for path in matches})) != 1:
        which = f"several runs: {', '.join(names)}" if names else f"no run in {', '.join(map(folder_name, sets))}"
        raise CannotRerun(f"{run!r} names {which}")
    return matches[0]


def study_of(run: Path) -> StudyIndex | None:
    """The first study in the run's set that the run belongs to."""
    return next((index for index in studies(run.parent.parent) if run.name in index.run_ids), None)


def remedy(run: Path) -> str:
    """What to do about damaged records: the command that measures the run again, and the one that removes it."""
    index = study_of(run)
    command = f"`{index.command}`" if index and index.command else "its command and --redo"
    return f"measure it again with {command}, or remove it with `hpc discard {run.name}`"


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
                    local.run(request, redo=request.state == "complete", watch=watch)
            except local.RunStopped:
                raise
            except local.RunFailed as error:
                raise CannotRerun(f"the new run did not complete: {error}") from error
    return [request.run_id for request in requests]


def folder_name(folder: Path) -> str:
    """A folder as it is called in the clone; elsewhere its whole path."""
    root = paths.root()
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else str(folder)


def _missing_here(request: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """What the run needs that this machine lacks; empty if nothing is missing."""
    if record["nodes"] > 1:
        return f"needs {counted(record['nodes'], 'node')}"
    if request["config"].get("link_gbit") is not None:
        return "needs links that can be limited, a rehearsal cluster's"
    gpus = record["ranks_per_node"] if record["device"] in ("cuda", "rocm") else 0
    available = len(provenance.hardware().gpus)
    return f"needs {counted(gpus, 'GPU')}, {available} available" if gpus > available else ""
