"""The paths that the rooms share. Each is defined here only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from .workspace import data as data
from .workspace import project as root
from .workspace import results, using

PACKED = "runs.jsonl"  # the file by which a packed result set is known


def results_at(folder: Path) -> AbstractContextManager[None]:
    """A context in which this process and those that it starts use `folder` for results."""
    return using(HPC_RESULTS=str(folder))


def runs() -> Path:
    """Raw records, one folder a run."""
    return results() / "runs"


def reference() -> Path:
    """Committed result sets, one folder each."""
    return root() / "results" / "reference"


def is_result_set(folder: Path) -> bool:
    """Whether a folder holds runs, in folders or packed, or studies."""
    return any((folder / name).exists() for name in ("runs", "studies", PACKED))


def result_set(name: str | Path) -> Path:
    """A result set, by its folder, or its name among the committed or the imported ones.

    Raises:
        NoResultSet: there is none that holds runs.
    """
    for folder in (Path(name), reference() / name, results() / "foreign" / name):
        if is_result_set(folder):
            return folder.absolute()
    committed = ", ".join(sorted(path.name for path in reference().glob("*/")))
    raise NoResultSet(f"no result set {str(name)!r}: give a folder that holds runs, or one of {committed or 'none'}")


def result_sets() -> list[Path]:
    """`results/`, the committed and the imported sets, as far as they are there."""
    folders = [results(), *sorted(reference().glob("*/")), *sorted((results() / "foreign").glob("*/"))]
    return [folder for folder in folders if is_result_set(folder)]


class NoResultSet(LookupError):
    """No such result set; the message lists those that exist."""

    exit_code = 2


def submissions() -> Path:
    """The submissions to Slurm, one folder each."""
    return results() / "submissions"


def jobs() -> Path:
    """The job scripts."""
    return root() / "jobs"


def notebooks() -> Path:
    """The chapters."""
    return root() / "notebooks"


def studies() -> Path:
    """The folder of study files, where `hpc study new` writes."""
    return jobs() / "studies"


def study_files() -> dict[str, Path]:
    """{name: its study file}: those of the folder `studies` and of the companions."""
    files = [*studies().glob("*.toml"), *root().glob("companions/*/studies/*.toml")]
    return {path.stem: path for path in sorted(files)}


def clusters() -> Path:
    """Cluster files, `<name>.toml`."""
    return jobs() / "clusters"
