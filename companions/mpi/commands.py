"""`hpc bench allreduce --mpi`, which the core's command line finds here."""

from __future__ import annotations

import click

LAUNCHER = "companions.mpi.launcher:Mpi"


def register(main: click.Group) -> None:
    """Add the option `--mpi` to `hpc bench allreduce`."""
    allreduce = main.commands["bench"].commands["allreduce"]
    description = "Measure MPI_Allreduce instead; kept under results/probes/mpi."
    flag = {"flag_value": LAUNCHER, "default": "", "show_default": False}
    allreduce.params.append(click.Option(["--mpi", "launcher"], **flag, help=description))
