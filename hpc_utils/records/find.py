"""Finds a run in the result sets by its name, and its study."""

from __future__ import annotations

from pathlib import Path

from hpc_utils import paths

from . import packed
from .folder import read_json
from .study import StudyIndex, studies


class NoSuchRun(ValueError):
    """No run has that name, or several have."""

    exit_code = 2


def find_run(run: str, results: Path | None = None) -> Path:
    """The folder of a run, named by its id, by the last part of it, or by its path.

    Args:
        results: the set to look in; by default the user's own, then the committed ones.

    Raises:
        NoSuchRun: there is no such run, or several.
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
        raise NoSuchRun(f"{run!r} names {which}")
    return matches[0]


def study_of(run: Path) -> StudyIndex | None:
    """The first study in the run's set that the run belongs to."""
    return next((index for index in studies(run.parent.parent) if run.name in index.run_ids), None)


def remedy(run: Path) -> str:
    """What to do about damaged records: the command that measures the run again, and the one that removes it."""
    index = study_of(run)
    command = f"`{index.command}`" if index and index.command else "its command and --redo"
    return f"measure it again with {command}, or remove it with `hpc discard {run.name}`"


def folder_name(folder: Path) -> str:
    """A folder as it is called in the clone; elsewhere its whole path."""
    root = paths.root()
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else str(folder)
