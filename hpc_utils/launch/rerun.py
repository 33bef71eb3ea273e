"""A run made again: found in a result set, asked for as it was, and trained anew into a result set of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance, toml_config
from hpc_utils.config import RunConfig
from hpc_utils.records import fingerprint, packed
from hpc_utils.records.folder import read_json, state
from hpc_utils.records.load import Refused, verify

from . import local, parameters, warm
from .request import Layout, Request, prepare
from .watch import follow

if TYPE_CHECKING:
    import pandas as pd


class CannotRerun(ValueError):
    """The run cannot be made again here; the message says why, and what to do instead."""

    exit_code = 2


def find(run: str, results: Path | None = None) -> Path:
    """The folder of a run, named by its id, by the last part of it, or by its path.

    Args:
        results: the set to look in; by default the user's own, then the committed ones.

    Raises:
        CannotRerun: there is no such run, or several.
    """
    if read_json(Path(run).absolute() / "run.json") is not None:
        return Path(run).absolute()
    sets = [results] if results else [paths.results(), *sorted(paths.reference().glob("*"))]
    known = [path for one in sets for path in packed.folders(one)]
    found = [path for path in known if path.name == run] or [path for path in known if path.name.endswith(f"-{run}")]
    if not found:
        near = toml_config.near(run, sorted({path.name for path in known}), cutoff=0.6)
        hint = f"; is it {' or '.join(near)}?" if near else ""
        raise CannotRerun(f"no run {run!r} in {', '.join(map(shown, sets))}{hint}")
    if len(names := {path.name for path in found}) > 1:
        raise CannotRerun(f"{run!r} is the end of {len(names)} runs' names: {', '.join(sorted(names))}")
    return found[0]


def study_of(run: Path) -> dict[str, Any] | None:
    """The index of the first study in the run's set that the run belongs to, as `records.read_study` returns it."""
    for path in sorted((run.parent.parent / "studies").glob("*.json")):
        index = read_json(path) or {}
        if any(one.get("run_id") == run.name for one in index.get("runs", ())):
            return index
    return None


def again(run: Path, repeat: int, *, notebook: Path | None = None) -> Request:
    """The request of that run once more, as number `repeat`: every parameter as it was, its seed too.

    Args:
        run: the run's folder. notebook: what its ranks executed, if that lies elsewhere than the compendium's own.

    Raises:
        CannotRerun: it is not complete, or it needs what is not here.
        ConfigError, DataError: as of `request.prepare`.
    """
    asked, made = _recorded(run)
    own = dict(asked["config"])
    if why := _missing_here(asked, made):
        raise CannotRerun(f"{run.name} {why}; {_elsewhere(run)}")
    gone = {name: value for name, value in own.items() if name not in RunConfig.model_fields}
    if said := {name: value for name, value in gone.items() if value is not None}:
        commit = (read_json(run / "provenance.json") or {}).get("commit") or "the one it was made with"
        raise CannotRerun(
            f"{run.name} was made with {', '.join(f'{k}={v}' for k, v in said.items())}, which this version does not know: "
            f"check out its commit, {commit}"
        )
    path = notebook or paths.notebooks() / asked["notebook"]
    if not path.is_file():
        raise CannotRerun(
            f"{run.name} executed {asked['notebook']}, which is not in {path.parent}: --notebook FILE says where"
        )
    known = parameters.defaults(path)
    given = {name: value for name, value in own.items() if name not in gone}
    given |= {n: v for n, v in asked["parameters"].items() if n not in RunConfig.model_fields and n in known}
    if made["device"] == "cpu" and provenance.hardware().gpus:  # "auto" would now take them
        given["device"] = "cpu"
    return prepare(path, given | {"repeat": repeat}, Layout(made["nodes"], made["ranks_per_node"]))


def unchanged(run: Path) -> None:
    """Check the run against what chapters of its set noted of its records when they read them.

    Raises:
        CannotRerun: its records have changed since.
    """
    for path in sorted((run.parent.parent / "exports").glob("*.json")):
        noted = ((read_json(path) or {}).get("runs") or {}).get(run.name)
        if noted and noted.get("fingerprint") != fingerprint.of_run(run):
            raise CannotRerun(
                f"the records of {run.name} have changed since exports/{path.name} was written: restore them, or take the run "
                "from where it was measured"
            )


def copies(own: Path, runs: pd.DataFrame, other: Path, others: pd.DataFrame) -> list[str]:
    """The ids of `others` (rows, of the set `other`) that are `runs` of the set `own`: by their records, or id and start."""
    begun = set(zip(runs.run_id, runs.started, strict=True))
    alike = {fingerprint.of_run(own / "runs" / run) for run in runs.run_id}
    return [
        row.run_id
        for row in others.itertuples()
        if (row.run_id, row.started) in begun or fingerprint.of_run(other / "runs" / row.run_id) in alike
    ]


def execute(
    run: Path,
    repeats: int,
    into: Path,
    *,
    notebook: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Train that run `repeats` times, into the result set `into`; the ids of the new runs.

    What is complete there from an earlier time is measured again; what was stopped goes on. `say` hears of each as it begins.

    Raises:
        CannotRerun: as of `again`, or one of them failed. RunStopped: a signal came; the same call goes on.
    """
    if into.absolute() == run.parent.parent.absolute():
        raise CannotRerun(f"{into} holds the run itself, which must stay as it is: choose another folder")
    with paths.results_at(into):
        requests = [again(run, repeat, notebook=notebook) for repeat in range(1, repeats + 1)]
        with warm.started(local.environment()) as warm_process:
            for number, request in enumerate(requests, 1):
                say(f"[{number}/{repeats}] {request.run_id}, into {into}")
                try:
                    with follow(request.run_id, lines=False) as watch:
                        local.run(request, redo=request.state == "complete", warm_process=warm_process, watch=watch)
                except local.RunStopped:
                    raise
                except local.RunFailed as error:
                    raise CannotRerun(f"made again, it did not end well: {error}") from error
    return [request.run_id for request in requests]


def _recorded(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(request.json, run.json) of a complete run."""
    if (how := state(run)) != "complete":
        raise CannotRerun(f"{run.name} is not complete ({how}): there are no numbers to compare with")
    try:
        verify(run)
    except Refused as error:
        raise CannotRerun(f"{run.name}: its records cannot be true: {error}") from None
    asked = read_json(run / "request.json")
    if not asked:
        raise CannotRerun(
            f"{run.name} was not started by hpc (it has no request.json): run its own program again, and compare with "
            f"`hpc verify RUN --against RESULTS`"
        )
    return asked, read_json(run / "run.json")


def _missing_here(asked: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """What the run needs that this machine has not; empty if nothing is missing."""
    if made["nodes"] > 1:
        return f"needs {made['nodes']} nodes"
    if asked["config"].get("link_gbit") is not None:
        return "needs links that can be limited, a rehearsal cluster's"
    if made["device"] in ("cuda", "rocm"):
        needed, here = made["ranks_per_node"], len(provenance.hardware().gpus)
        if here < needed:
            return (
                f"needs {needed} GPU{'s' if needed > 1 else ''}, and here {'is none' if not here else f'are {here}'}"
            )
    return ""


def _elsewhere(run: Path) -> str:
    """How a run is made again that this machine alone cannot make."""
    study, made = study_of(run), read_json(run / "run.json")
    hardware = made.get("hardware_id") or ""
    name = study["name"].removesuffix(f"-{hardware}") if study else "STUDY"
    where = "rehearsal" if hardware.startswith("rehearsal") else "NAME"
    return (
        f"make its study again where that is, and compare: `HPC_RESULTS=again hpc submit {name} --cluster {where} --wait`, "
        f"then `hpc verify {run.name} --against again`"
    )


def shown(folder: Path) -> str:
    """A folder as it is called in the clone; elsewhere its whole path."""
    try:
        return folder.relative_to(paths.root()).as_posix()
    except ValueError:
        return str(folder)
