"""What the commands that go to a cluster share: the option for its nodes, and the way there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hpc_utils.launch.cluster import Cluster

nodes_of = click.option(
    "--nodes-of", "node_type", default="", metavar="TYPE", help="The cluster's type of node, if it has several."
)


def arrive(cluster_name: str) -> tuple[Cluster, dict[str, str]]:
    """Make this process one of that cluster's users: its Slurm answers, and results and data lie where jobs have them.

    Returns:
        The cluster file, and what was set in the environment because the file says where results and data are.

    Raises:
        ClusterError: no such cluster, or a wrong file; or the rehearsal cluster cannot start.
    """
    from hpc_utils import paths
    from hpc_utils.launch import cluster, environment

    found = cluster.read(cluster_name)
    connect(found.rehearsal)
    moved = environment.folders(found, paths.root(), os.environ)
    os.environ.update(moved)
    return as_it_is(found), moved


def as_it_is(cluster: Cluster) -> Cluster:
    """`cluster`; a rehearsal with the links and devices of the one that Slurm's commands find."""
    from hpc_utils import rehearsal

    if not cluster.rehearsal or (found := rehearsal.around()) is None:
        return cluster
    return cluster.rehearsed(links=None if found.flat else found.by_hand or "", share=found.share)


def connect(to_rehearsal: bool) -> None:
    """Let Slurm's commands find the rehearsal cluster, starting it if need be; any other is simply there."""
    if not to_rehearsal or os.environ.get("SLURM_CONF"):
        return
    from hpc_utils import rehearsal

    try:
        found = rehearsal.find()
    except rehearsal.KilledError as error:
        click.echo(error, err=True)
        found = None
    if found is None:
        click.echo("starting the rehearsal cluster (`hpc cluster down` ends it)", err=True)
        found = rehearsal.up()
    os.environ.update(found.environment())


def connect_to_submissions(study: str | None) -> tuple[str, ...]:
    """The same, for what was submitted before; nothing is started.

    Returns:
        The clusters of submissions that are not up any more: their jobs are gone with them, which stderr is told.
    """
    from hpc_utils import rehearsal
    from hpc_utils.launch.submission import submissions

    if os.environ.get("SLURM_CONF") or not any(one.cluster == "rehearsal" for one in submissions(study)):
        return ()
    try:
        if found := rehearsal.find():
            os.environ.update(found.environment())
            return ()
        why = "the rehearsal cluster is not up"
    except rehearsal.ClusterError as error:
        why = str(error)
    click.echo(f"{why}; of its jobs only what they recorded is told", err=True)
    return ("rehearsal",)
