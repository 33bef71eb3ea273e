"""`hpc chapter`: a chapter executed anew on a result set."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("notebook")
@click.option(
    "--results", metavar="SET", default="", help="A result set's folder, or its name under results/reference."
)
@click.option(
    "-p",
    "--parameter",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="As the chapter's first cell names them.",
)
def chapter(notebook: str, results: str, assignments: tuple[str, ...]) -> None:
    """Execute NOTEBOOK, a chapter that reads results, on the set where it lies (default: results/).

    Its figures with their data, its tables and its values are written anew. NOTEBOOK: a path, or a name such as 03_scaling.
    """
    from hpc_utils import paths
    from hpc_utils.config import parse_assignments
    from hpc_utils.launch.parameters import of_chapter
    from hpc_utils.publish.chapters import renew

    path = Path(notebook) if notebook.endswith(".ipynb") else paths.notebooks() / f"{notebook}.ipynb"
    study, given = of_chapter(path, parse_assignments(assignments))
    folder = paths.result_set(results) if results else paths.results()
    click.echo(renew(path, folder, **given | {"study": study}))
