"""`hpc cluster init` and `hpc study new`, which the core's command line finds here."""

from __future__ import annotations

import re

import click


def register(main: click.Group) -> None:
    """Add a command to each of these groups."""
    main.commands["cluster"].add_command(cluster_init)
    main.commands["study"].add_command(study_new)


@click.command("init")
@click.argument("cluster_name", metavar="[NAME]", default="")
def cluster_init(cluster_name):
    """Draft jobs/clusters/NAME.toml from this machine's Slurm.

    The default NAME is that in Slurm's configuration. Each value has its source as a comment; what Slurm does not know
    is marked FILL IN. No file is overwritten.
    """
    from .cluster import init

    path = init(cluster_name)
    missing = len(re.findall("#.*FILL IN", path.read_text()))
    click.echo(
        f"{path}: complete {missing} lines with FILL IN; then hpc submit STUDY --cluster {path.stem} --dry-run"
    )


@click.command("new")
@click.argument("name")
@click.option("--workload", metavar="MODULE:FUNCTION", help="Your model, from this folder or PYTHONPATH.")
@click.option("--script", metavar="FILE.py", help="Your own training loop, with a recorder, in this folder.")
def study_new(name, workload, script):
    """Draft a study of your own model or training loop.

    The file jobs/studies/NAME.toml (or NAME, the path of a .toml) measures the baseline, strong and weak scaling on
    this machine's devices, with comments on what to change. Two steps of a workload are tried, to choose the steps of an
    epoch. No file is overwritten.
    """
    from .study import new

    if bool(workload) == bool(script):
        raise click.UsageError("give either --workload MODULE:FUNCTION or --script FILE.py")
    path = new(name, workload or script)
    click.echo(
        f"{path}\nnext:\n  hpc study plan {name}    list its runs\n  hpc study run {name}     measure, and write the report\n"
        f"  hpc paper new {path.stem}    write a page about it"
    )
