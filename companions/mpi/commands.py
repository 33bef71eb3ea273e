"""`hpc bench allreduce --mpi`, which the core's command line finds here."""

from __future__ import annotations

import click

LAUNCHER = "companions.mpi.launcher:Mpi"


def register(main: click.Group) -> None:
    """Add the option `--mpi` to `hpc bench allreduce`."""
    allreduce = main.commands["bench"].commands["allreduce"]
    measure = allreduce.callback

    def measure_either(mpi: bool, **options):
        measure(launcher=LAUNCHER if mpi else "", **options)

    allreduce.callback = measure_either
    description = "Measure MPI_Allreduce instead; kept under results/probes/mpi."
    allreduce.params.append(click.Option(["--mpi"], is_flag=True, help=description))
