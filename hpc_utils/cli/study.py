"""`hpc study`, `hpc collect`, `hpc report`: many runs, and what they add up to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpc_utils import paths

from .sets import SETS

if TYPE_CHECKING:
    from hpc_utils.launch.target import Target


def _overrides(command: Callable) -> Callable:
    """The options that change a study for one machine."""
    command = click.option("--repeats", type=click.IntRange(1), help="Instead of the study file's.")(command)
    text = "In every run, instead of what the study file says; a matrix and a ladder keep their own values."
    return click.option("-p", "--parameter", "assignments", multiple=True, metavar="NAME=VALUE", help=text)(command)


def _here(assignments: tuple[str, ...], repeats: int | None) -> Target:
    from hpc_utils.config import parse_assignments
    from hpc_utils.launch.target import Target

    return Target.here(parse_assignments(assignments), repeats)


@click.group()
def study() -> None:
    """Studies: matrices of runs, from jobs/studies/*.toml."""


@study.command("plan")
@click.argument("name")
@_overrides
def study_plan(name: str, assignments: tuple[str, ...], repeats: int | None) -> None:
    """Show which runs a study consists of, and what is done already."""
    from hpc_utils.launch import study as studies

    plan = studies.plan(name, _here(assignments, repeats))
    runs = plan.requests
    for line in plan.impossible:
        click.secho(line, dim=True)
    for request in runs:
        click.echo(f"{request.state:10} {request.run_id}")
    done = sum(request.state == "complete" for request in runs)
    click.echo(f"{len(runs)} runs, {done} complete, {len(runs) - done} to do")


@study.command("run")
@click.argument("name")
@click.option("--redo", is_flag=True, help="Measure again what is complete.")
@click.option("--cold", is_flag=True, help="Start each rank as a new process, instead of forking all from one.")
@click.option("--no-report", is_flag=True, help="Only the runs; `hpc report NAME` draws them later.")
@_overrides
def study_run(
    name: str, redo: bool, cold: bool, no_report: bool, assignments: tuple[str, ...], repeats: int | None
) -> None:
    """Run what is missing of a study, one run after another, then draw its figures and write its report."""
    from hpc_utils.launch.study import execute
    from hpc_utils.publish.chapters import conclude

    name = execute(name, _here(assignments, repeats), redo=redo, cold=cold)
    if not no_report:
        conclude(name)


@study.command("keep")
@click.argument("names", metavar="STUDY...", nargs=-1, required=True)
@click.option("--as", "hardware", required=True, metavar="HARDWARE", help="Folder under results/reference.")
def study_keep(names: tuple[str, ...], hardware: str) -> None:
    """Copy a complete study's runs, figures and chapters to results/reference/HARDWARE, to be committed.

    Of several studies the runs. Chapters that are about all runs of a set, such as 03, are executed on all that it then holds.
    """
    from hpc_utils.publish.reference import keep

    click.echo(keep(names, hardware))


@click.command()
@click.option(
    "--results", "kept", metavar="SET", help="Another set than results/: a folder, or a name under results/reference."
)
def collect(kept: str | None) -> None:
    """Join all complete runs into results/csv/runs.csv and epochs.csv, and write results/SYSTEM.md.

    Runs whose records cannot be true are left out and named; the exit code is then 1.
    """
    from hpc_utils import records
    from hpc_utils.publish.chapters import write_system

    from .sets import result_set

    folder = result_set(kept) if kept else paths.results()
    found = records.collect(folder)
    write_system(found, folder)
    for name, why in found.refused.items():
        click.secho(f"refused {name}: {why}", fg="red", err=True)
    for name, state in found.unfinished.items():
        click.secho(f"not complete ({state}): {name}", fg="yellow", err=True)
    click.echo(f"{len(found.runs)} runs, {len(found.epochs)} epochs: {folder / 'csv'}")
    sys.exit(1 if found.refused else 0)


@click.command()
@click.argument("name", metavar="[STUDY]", required=False)
@click.option(
    "--results",
    "kept",
    metavar="SET",
    help=f"Execute nothing: bind the set as it lies there. {SETS}",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the page, instead of SET/report/index.html.",
)
def report(name: str | None, kept: str | None, output: Path | None) -> None:
    """Execute the chapters that read STUDY's records (by default laptop's), draw its figures, write results/report/index.html.

    With --results nothing is executed: the chapters that lie in SET are bound as they are, those of STUDY or all. The page
    says on top what is stale.
    """
    from hpc_utils.publish.chapters import bind, conclude

    from .sets import result_set

    if kept is None:
        conclude(name or "laptop", output)
    else:
        click.echo(bind(result_set(kept), name, output))
