"""What the commands that go to a cluster share: the option for its nodes, and the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from hpc_utils import workspace

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
    from hpc_utils.launch import cluster, job_environment

    found = cluster.read(cluster_name)
    connect(found.rehearsal)
    moved = job_environment.folders(found)
    use(moved)
    return as_it_is(found), moved


def use(variables: Mapping[str, str]) -> None:
    """Put `variables` over the environment until the command ends."""
    click.get_current_context().with_resource(workspace.using(**variables))


def as_it_is(cluster: Cluster) -> Cluster:
    """`cluster`; a rehearsal with the links and devices of the one that Slurm's commands find."""
    from hpc_utils import rehearsal

    if not cluster.rehearsal or (found := rehearsal.around()) is None:
        return cluster
    return cluster.rehearsed(links=None if found.flat else found.by_hand or "", share=found.share)


def connect(to_rehearsal: bool) -> None:
    """Let Slurm's commands find the rehearsal cluster, starting it if need be; any other is simply there."""
    if not to_rehearsal or workspace.environment().get("SLURM_CONF"):
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
    use(found.environment())


def connect_to_submissions(study: str | None) -> tuple[str, ...]:
    """The same, for what was submitted before; nothing is started.

    Returns:
        The clusters of submissions that are not up any more: their jobs are gone with them, which stderr is told.
    """
    from hpc_utils import rehearsal
    from hpc_utils.launch.submission import submissions

    if workspace.environment().get("SLURM_CONF") or not any(one.cluster == "rehearsal" for one in submissions(study)):
        return ()
    try:
        if found := rehearsal.find():
            use(found.environment())
            return ()
        why = "the rehearsal cluster is not up"
    except rehearsal.ClusterError as error:
        why = str(error)
    click.echo(f"{why}; of its jobs only what they recorded is told", err=True)
    return ("rehearsal",)
