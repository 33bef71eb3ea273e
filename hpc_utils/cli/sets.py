"""Result sets as a reader calls them: one look-up for all commands."""

from __future__ import annotations

from pathlib import Path

SETS = "SET: a folder, a name under results/reference, or an alias of paper/paper.toml."


def result_set(name: str | Path) -> Path:
    """The folder of the set `name`: as of `paths.result_set`, or by the name that texts call it by (`laptop`).

    Raises:
        NoResultSet: there is none that holds runs; near names are said.
    """
    from hpc_utils import paths, toml_config

    try:
        return paths.result_set(name)
    except paths.NoResultSet:
        named = aliases()
        if (folder := named.get(str(name))) and paths.is_result_set(folder):
            return folder
        folders = sorted(path for path in paths.reference().glob("*/"))
        near = toml_config.nearest(str(name), [*named, *(path.name for path in folders)])
        hint = (
            f"did you mean {near}?"
            if near
            else f"or one of {', '.join(called(path, named) for path in folders) or 'none'}"
        )
        raise paths.NoResultSet(f"no result set {str(name)!r}: give a folder that holds runs; {hint}") from None


def aliases() -> dict[str, Path]:
    """{alias: folder} of paper/paper.toml; none where that cannot be read, which `hpc paper` says."""
    from hpc_utils import paths
    from hpc_utils.publish.documents import project

    try:
        sets = project.read(paths.root() / "paper" / "paper.toml").sets
    except project.ProjectError:
        return {}
    return {alias: (paths.root() / folder).absolute() for alias, folder in sets.items()}


def called(folder: Path, named: dict[str, Path]) -> str:
    """What a set is called: `laptop = epyc-2core`, or its folder's name alone where texts have none for it."""
    own = [alias for alias, path in named.items() if path == folder.absolute() and alias != folder.name]
    return " = ".join([*own, folder.name])
