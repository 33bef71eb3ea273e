"""`hpc cluster init`, `hpc study new` and `hpc paper new`, which the core's command line finds here."""

from __future__ import annotations

import re

import click

from hpc_utils import paths
from hpc_utils.cli.common import SET, results_option


def register(main: click.Group) -> None:
    """Add a command to each of these groups."""
    main.commands["cluster"].add_command(cluster_init)
    main.commands["study"].add_command(study_new)
    main.commands["paper"].add_command(paper_new)


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


@click.command("new")
@click.argument("name")
@click.option(
    "--template", default="page", type=click.Choice(["page", "paper", "proposal", "proposal-500", "pitch"]),
    show_default=True,
)  # fmt: skip
@click.option("--study", default="", help="Default: of a page NAME; of the others the only one, or the whole set.")
@results_option(f"Default: results/. {SET}")
def paper_new(name, template, study, folder):
    """Write a document about a study, to be edited.

    paper/NAME.md cites cells of SET. The document is added to paper/paper.toml, and results/ as the set `mine`. `hpc paper NAME`
    builds it. What SET lacks is printed as "not measured".

    \b
    page           one page: a figure, the targets and the points of a study
    paper          4 to 6 pages, with guidance for each section
    proposal       6 to 8 pages, for EuroHPC Development Access; node-hours of chapter 07_proposal
    proposal-500   the same for 500 node-hours on 1 to 32 GPUs in four months
    pitch          five slides
    """
    from . import document

    written = document.write_draft(paths.root(), folder or paths.results(), name, study, template)
    click.echo(f"{written}: edit it; `hpc paper {name}` builds it")
