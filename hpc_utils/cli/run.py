"""`hpc run`, `point`, `discard`, `params`, `data`: one run, its parameters and its data."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpc_utils import paths

from .common import FILE, parameters_option, run_links, tell

if TYPE_CHECKING:
    from hpc_utils.launch.local import Place
    from hpc_utils.launch.request import Request


@click.command()
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option("--nproc", default=1, help="Ranks on each node.")
@click.option("--nodes", default=1, help="Nodes; several need a LAUNCHER that starts ranks there.")
@parameters_option()
@click.option("--redo", is_flag=True, help="Measure again even if the run is complete.")
@click.option("--cold", is_flag=True, help="Start each rank as a new process instead of a fork.")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED)
def run(notebook, nproc, nodes, parameters, redo, cold, launcher):
    """Execute a notebook on every rank.

    Ranks are processes of this machine, which a loop of your own may have its launcher start; parallel=none is one
    process. The run's folder under results/runs holds its records, its logs and the executed notebook of rank 0. A
    complete run is not repeated; a stopped one continues from its checkpoint.

    LAUNCHER, after `--`, is another command that starts the ranks, such as `srun ... torchrun ...`;
    `-m hpc_utils.launch.rank ...` is appended to it (see jobs/train.sbatch).
    """
    from hpc_utils import profilers
    from hpc_utils.config import ConfigError
    from hpc_utils.launch import forkserver, local

    if launcher and not shutil.which(launcher[0]):
        raise ConfigError(f"{launcher[0]!r} is not a program; parameters are given as -p name=value")
    if nodes > 1 and not launcher:
        raise ConfigError(f"--nodes {nodes}: several nodes need a launcher (see jobs/train.sbatch)")
    if not launcher and parameters.get("parallel") != "own":  # a loop's own launcher may not need it
        # It imports while the request is prepared.
        forkserver.start(cold=cold or parameters.get("profile") in profilers.PROGRAMS)
    from hpc_utils.launch.request import Layout, prepare

    request = prepare(notebook, parameters, Layout(nodes, nproc), imports=not launcher)
    _execute(replace(request, redo=redo), local.Place(launcher, cold, _is_gone))


@click.command(hidden=True)
@click.argument("points", type=FILE)
@click.argument("number", type=int)
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED)
def point(points, number, launcher):
    """Execute the runs of task NUMBER of a submission's POINTS file; array jobs call this. Several take turns."""
    from hpc_utils.launch import local, measure
    from hpc_utils.launch.submit import read_task

    todo = read_task(points, number)
    place = local.Place(launcher, is_gone=_is_gone)
    if len(todo) == 1:
        _execute(todo[0], place)
        return
    failures = list(measure.together(todo, place))
    for _, error in failures:
        raise error
    for request in todo:
        click.echo(request.path)


def _execute(request: Request, place: Place) -> None:
    from hpc_utils.launch import local

    try:
        with local.follow(request) as watch, run_links(request, on_nodes=bool(place.launcher)):
            path = local.run(request, place, watch=watch)
    except local.AlreadyComplete as done:
        tell(f"{done}: nothing to do (--redo measures again, also after a change of the code)")
        path = done.path
    click.echo(path)


def _is_gone(owner: Mapping[str, Any]) -> bool:
    from hpc_utils.launch import slurm_commands

    return bool(owner["job"]) and slurm_commands.is_gone(owner["job"])


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
def discard(runs):
    """Remove runs from results/runs, whatever their state.

    RUN is an id, or its last part. A run that a process works on is refused (exit code 3). A terminal is asked first.
    """
    from hpc_utils.records import claim, find

    folders = [find.find_run(run, paths.results()) for run in runs]
    for path in folders:
        if path.parent != paths.runs() or path.is_symlink() or not (path / "status.json").is_file():
            raise click.UsageError(f"{path} is not the folder of a run in {paths.runs()}")
    if sys.stdin.isatty():
        click.confirm(f"remove {', '.join(path.name for path in folders)}?", abort=True)
    for path in folders:
        claim.claim(path, _is_gone)
        shutil.rmtree(path)
        click.echo(f"removed {path}")


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Explain all of them.")
def params(names, every):
    """Explain the parameters of a run.

    Those of a first study, the parameters NAME, or all; the names of the others are listed by subject.
    """
    from hpc_utils.config import FIRST, RunConfig, describe, unknown_parameter

    for name in names:
        if name not in RunConfig.model_fields:
            raise click.UsageError(unknown_parameter(name, RunConfig.model_fields))
    rows = describe()
    explained = {row["name"] for row in rows} if every else set(names or FIRST)
    for row in rows:
        if row["name"] in explained:
            unit = f" {row['unit']}" if row["unit"] else ""
            click.secho(row["name"], bold=True, nl=False)
            click.echo(f" = {row['default']}{unit}  ({row['type']})\n    {row['meaning']}")
    if names or every:
        return
    click.echo("\nThe others (`hpc params NAME` explains one, --all explains them all):")
    for group, members in itertools.groupby(rows, lambda row: row["group"]):
        if others := [row["name"] for row in members if row["name"] not in explained]:
            click.echo(f"  {group}: {', '.join(others)}")


@click.group()
def data():
    """List, fetch and verify data sets."""


@data.command("list")
def data_list():
    """List the data sets, and which of them are here."""
    from hpc_utils import datasets

    for name, dataset in datasets.DATASETS.items():
        try:
            datasets.load(name, "train")
            state = "here"
        except datasets.DataError:
            state = f"hpc data fetch {name}"
        click.echo(f"{name:15} {dataset.title}  [{state}]")


@data.command("fetch")
@click.argument("names", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Fetch and decode again even if it is here.")
def data_fetch(names, force):
    """Download, verify and decode the data sets NAMES, or copy them from the folder $HPC_DATA_MIRROR."""
    from hpc_utils import datasets

    for name in names:
        click.echo(datasets.fetch(name, force=force))


@data.command("verify")
@click.argument("names", nargs=-1, required=True)
def data_verify(names):
    """Compare the checksum of every image and label with the catalogue."""
    from hpc_utils import datasets

    for name in names:
        datasets.verify(name)
        click.echo(f"{name}: verified")
