"""`hpc doctor`: is this machine, or this cluster, ready to measure?"""

from __future__ import annotations

import sys

import click

from .on_cluster import arrive, nodes_of


@click.command()
@click.option("--nproc", default=1, show_default=True, type=click.IntRange(1), help="Ranks on this machine.")
@click.option("--cluster", "cluster_name", metavar="NAME", help="Not here: in a job on this cluster's nodes.")
@nodes_of
@click.option("--nodes", default=2, show_default=True, type=click.IntRange(1), help="Nodes of the cluster.")
def doctor(nproc: int, cluster_name: str | None, node_type: str, nodes: int) -> None:
    """Is this machine, or this cluster, ready to measure? At most two minutes.

    Looks at the driver and torch, devices and cores, the network, storage, Slurm, clocks, and says pass, fail or
    unknown, with what to do. The report is kept under results/doctor. The exit code is 1 if something fails.
    """
    from hpc_utils.launch import diagnostics

    if cluster_name:
        found, _ = arrive(cluster_name)
        said, report = diagnostics.on_cluster(
            diagnostics.DOCTOR, found, node_type, (nodes, 0), diagnostics.doctor_arguments(found),
            lambda line: click.echo(line, err=True),
        )  # fmt: skip
        click.echo(said)
    else:
        report = diagnostics.on_this_machine(
            diagnostics.DOCTOR, nproc, diagnostics.doctor_arguments()
        )  # the ranks print it as they go
    sys.exit(1 if report["verdict"] == "fail" else 0)
