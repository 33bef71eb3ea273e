"""`hpc chapter`: execute a chapter again on a result set."""

from __future__ import annotations

from pathlib import Path

import click

from .sets import SETS, result_set


@click.command()
@click.argument("notebook")
@click.option("--results", metavar="SET", default="", help=SETS)
@click.option(
    "-p",
    "--parameter",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="As the chapter's first cell names them.",
)
@click.option("--drop", is_flag=True, help="Tables and figures that it exported before may go.")
def chapter(notebook: str, results: str, assignments: tuple[str, ...], drop: bool) -> None:
    """Execute NOTEBOOK, a chapter that reads results, on the set where it lies (default: results/).

    Its tables and its figures with their data are written again. If one that it exported before would be missing, nothing is changed
    and they are listed (exit code 2). NOTEBOOK: a path, or a name such as 03_scaling.
    """
    from hpc_utils import paths, provenance
    from hpc_utils.config import parse_assignments
    from hpc_utils.launch.parameters import of_chapter
    from hpc_utils.publish.chapters import renew

    path = _path(notebook)
    study, given = of_chapter(path, parse_assignments(assignments))
    folder = result_set(results) if results else paths.results()
    if provenance.dirty():
        click.secho(
            "the tree is not as committed (results aside): what this chapter exports cannot be released; commit, then execute",
            fg="yellow",
            err=True,
        )
    click.echo(renew(path, folder, drop=drop, **given | {"study": study}))


def _path(notebook: str) -> Path:
    from hpc_utils import paths, toml_config

    path = Path(notebook) if notebook.endswith(".ipynb") else paths.notebooks() / f"{notebook}.ipynb"
    if not path.is_file():
        hint = toml_config.hint(Path(notebook).stem, (chapter.stem for chapter in paths.notebooks().glob("*.ipynb")))
        raise click.BadParameter(f"there is no chapter {notebook}: {hint}", param_hint="NOTEBOOK")
    return path
