"""`hpc study keep`, which the core's command line finds here."""

from __future__ import annotations

import click

from hpc_utils import paths
from hpc_utils.cli.common import SET, aliases, results_option, tell


def register(main: click.Group) -> None:
    """Add `hpc study keep`."""
    main.commands["study"].add_command(study_keep)


@click.command("keep")
@click.argument("names", metavar="STUDY...", nargs=-1, required=True)
@click.option("--as", "hardware", required=True, metavar="HARDWARE", help="Folder under results/reference.")
@results_option(f"Of another set than results/, such as an imported one. {SET}")
def study_keep(names, hardware, folder):
    """Copy complete studies to results/reference, to be committed.

    Their runs, figures and chapters go to results/reference/HARDWARE. Chapters that analyze all runs of a set, such
    as 03, are executed again on the whole set.
    """
    from .reference import keep

    with paths.results_at(folder or paths.results()):
        kept = keep(names, hardware)
    click.echo(kept)
    if kept not in aliases().values():
        tell(f'documents cite it as NAME after `NAME = "results/reference/{hardware}"` in [sets] of paper/paper.toml')
