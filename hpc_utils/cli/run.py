"""`hpc run`, `hpc point`, `hpc params`: one run."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_utils.launch.request import Request


@click.command()
@click.argument("notebook", type=click.Path(path_type=Path))
@click.option("--nproc", default=1, show_default=True, help="Ranks on each node.")
@click.option("--nodes", default=1, show_default=True, help="Nodes; more than one need a LAUNCHER that reaches them.")
@click.option("-p", "--parameter", "assignments", multiple=True, metavar="NAME=VALUE", help="See `hpc params`.")
@click.option("--redo", is_flag=True, help="Measure again although the run is complete.")
@click.option("--cold", is_flag=True, help="Start each rank as a new process, instead of forking them from one.")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED)
def run(
    notebook: Path,
    nproc: int,
    nodes: int,
    assignments: tuple[str, ...],
    redo: bool,
    cold: bool,
    launcher: tuple[str, ...],
) -> None:
    """Execute NOTEBOOK on every rank: under torchrun, or in one plain process if parallel=none.

    The run's folder under results/runs keeps its records, logs and rank 0's notebook with its outputs. A run that is
    complete is not repeated; one that was stopped goes on from its checkpoint.

    What follows `--` starts the ranks instead: a command such as `srun ... python -m torch.distributed.run ...`, to
    which `-m hpc_utils.launch.rank ...` is appended (jobs/train.sbatch does so).
    """
    from hpc_utils.config import ConfigError, parse_assignments

    if launcher and not shutil.which(launcher[0]):
        raise ConfigError(
            f"{launcher[0]!r} is no program that could start ranks; parameters are given as -p name=value"
        )
    if nodes > 1 and not launcher:
        raise ConfigError(f"--nodes {nodes}: several nodes need a launcher that reaches them (see jobs/train.sbatch)")
    given = parse_assignments(assignments)
    from hpc_utils import profilers
    from hpc_utils.launch import warm

    # It imports while the request is prepared. Other nodes start their own.
    needless = cold or bool(launcher) or given.get("profile") in profilers.PROGRAMS
    with warm.started(cold=needless) as warm_process:
        from hpc_utils.launch.request import Layout, prepare

        request = prepare(notebook, given, Layout(nodes, nproc))
        _execute(request, redo, launcher, "" if launcher and not cold else warm_process)


@click.command()
@click.argument("points", type=click.Path(path_type=Path))
@click.argument("number", type=int)
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED)
def point(points: Path, number: int, launcher: tuple[str, ...]) -> None:
    """Execute point NUMBER of a submission's POINTS file: what each task of an array job calls."""
    from hpc_utils.launch.submission import read_point

    request, redo = read_point(points, number)
    _execute(request, redo, launcher)


def _execute(request: Request, redo: bool, launcher: tuple[str, ...], warm_process: str = "") -> None:
    from hpc_utils import profilers, provenance, workspace
    from hpc_utils.launch import local, slurm_commands, warm

    from . import links

    def is_gone(owner: Mapping[str, Any]) -> bool:
        return bool(owner["job"]) and slurm_commands.is_gone(owner["job"])

    one_machine = bool(launcher) and not warm_process and provenance.NODE_CORES in workspace.environment()
    watched = request.config.profile in profilers.PROGRAMS  # such ranks start cold
    if one_machine and not watched and workspace.launch().warm != warm.OFF:
        serving = warm.started(across_nodes=True)
    else:
        serving = contextlib.nullcontext(warm_process)
    try:
        with (
            serving as warm_process,
            local.follow(request.run_id) as watch,
            links.held_for(request, on_nodes=bool(launcher)),
        ):
            path = local.run(
                request, redo=redo, launcher=launcher, warm_process=warm_process, watch=watch, is_gone=is_gone
            )
    except local.AlreadyComplete as done:
        click.echo(f"{done}: nothing to do (--redo measures it again, after a change of code too)", err=True)
        path = done.path
    click.echo(path)


@click.command()
def params() -> None:
    """List every parameter of a run: its type, default, unit and meaning."""
    from hpc_utils.config import describe

    for row in describe():
        unit = f" {row['unit']}" if row["unit"] else ""
        click.secho(row["name"], bold=True, nl=False)
        click.echo(f" = {row['default']}{unit}  ({row['type']})\n    {row['meaning']}")
