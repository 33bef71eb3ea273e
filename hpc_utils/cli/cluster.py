"""`hpc cluster`: a real Slurm on this machine, to rehearse."""

from __future__ import annotations

import shlex
import signal
from typing import TYPE_CHECKING

import click

from .on_cluster import as_it_is, nodes_of

if TYPE_CHECKING:
    from hpc_utils.rehearsal import Cluster

named = click.option(
    "--name", default="rehearsal", show_default=True, help="Which cluster: several can be up at once."
)


@click.group()
def cluster() -> None:
    """A real Slurm on this machine, to rehearse; drafts of cluster files.

    \b
    hpc cluster up                                 munge, Slurm, accounting; two nodes with four stand-ins for GPUs
    eval "$(hpc cluster env)"                      then sbatch, srun, squeue, sacct as everywhere
    hpc cluster shape --rate 1gbit                 slower links between the nodes
    hpc cluster up --nodes 12 --cores-per-node 0.14    twelve devices on two cores
    hpc cluster down                               nothing is left
    """


@cluster.command("up")
@named
@click.option("--nodes", default=2, show_default=True, help="Nodes; each gets its share of this machine's cores.")
@click.option(
    "--cores-per-node", type=float, metavar="SHARE",
    help="Each node is one device of this share of a core, such as 0.14, which the kernel enforces for ranks.",
)  # fmt: skip
@click.option("--cpus", default=8, show_default=True, help="CPUs that each node claims to Slurm.")
@click.option("--gpus", default=4, show_default=True, help="Stand-ins for GPUs that each node claims.")
@click.option("--flat", is_flag=True, help="All nodes on this host, as is the case without root.")
def cluster_up(name: str, nodes: int, cores_per_node: float | None, cpus: int, gpus: int, flat: bool) -> None:
    """Start a cluster: munged, MariaDB, slurmdbd, slurmctld, and a slurmd on every node.

    With root each node has a host name, an address, processes and a link of its own. Jobs on a node keep to its share
    of the cores. More nodes than cores are honest devices with --cores-per-node, if the shares on a core add up to at
    most 90 %; what else is measured on them is recorded as oversubscribed, and stands in no scaling figure.
    """
    from hpc_utils import device_share, rehearsal

    if cores_per_node and (why := device_share.unavailable()):
        raise click.UsageError(f"--cores-per-node {cores_per_node:g}: {why}")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` cleans up as Ctrl-C does
    started = rehearsal.up(
        name, nodes=nodes, cpus=cpus, gpus=gpus, share=cores_per_node, flat=flat or None,
        progress=lambda step, seconds: click.echo(f"{seconds:6.1f} s  {step}"),
    )  # fmt: skip
    click.echo(f"{name} is up: {', '.join(started.nodes)}{' on this host (flat)' if started.flat else ''}")
    if started.oversubscribed:
        click.secho(
            "The nodes want more of the cores than there is: timings mean nothing. --cores-per-node gives each a share.",
            fg="yellow",
        )
    which = _option(name)
    click.echo(f'\n  eval "$(hpc cluster env{which})"             then sbatch, squeue, sacct as usual')
    if not which:
        click.echo("  hpc submit strong --cluster rehearsal")
    click.echo(f"  hpc cluster down{which}")


@cluster.command("down")
@named
def cluster_down(name: str) -> None:
    """End a cluster with everything that runs on it, and remove what a killed one left."""
    from hpc_utils import rehearsal

    ended = rehearsal.down(name)
    click.echo(f"{name}: ended {', '.join(ended)}" if ended else f"{name} is not up: there is nothing to end")


@cluster.command("status")
@named
def cluster_status(name: str) -> None:
    """Show its nodes as Slurm sees them, its links and its daemons."""
    found = _find(name)
    status = found.status()
    for node, state in status.nodes.items():
        click.echo(f"{node:10} {state:12} {found.address(node)}")
    links = "flat, without links" if found.flat else f"links {status.rate or 'as fast as this machine'}"
    if status.held:
        links += f", held for {', '.join(status.held)}"
    click.echo(f"{links}; {', '.join(daemon for daemon, alive in status.daemons.items() if alive)} run")


@cluster.command("env")
@named
def cluster_env(name: str) -> None:
    """Print the shell's lines that point sbatch, squeue and the others at the cluster."""
    for variable, value in _find(name).environment().items():
        click.echo(f"export {variable}={shlex.quote(value)}")


@cluster.command("kill-node")
@click.argument("node")
@named
def cluster_kill_node(node: str, name: str) -> None:
    """Cut NODE's power: everything on it is gone at once. Slurm notices within 15 s and requeues its jobs."""
    _find(name).kill_node(node)
    click.echo(f"{node} has no power; `hpc cluster revive-node {node}{_option(name)}` gives it back")


@cluster.command("revive-node")
@click.argument("node")
@named
def cluster_revive_node(node: str, name: str) -> None:
    """Give NODE its power back, and wait until Slurm takes it."""
    _find(name).revive_node(node)
    click.echo(f"{node} is ready")


@cluster.command("shape")
@click.option("--rate", required=True, metavar="RATE", help="As 100mbit or 2.5gbit; none lifts the limit.")
@named
def cluster_shape(rate: str, name: str) -> None:
    """Limit the bandwidth of every node's link, in each direction."""
    _find(name).shape(None if rate == "none" else rate)
    click.echo("the links are as fast as this machine" if rate == "none" else f"every node's link: {rate} each way")


@cluster.command("use")
@click.argument("cluster_name", metavar="NAME")
@nodes_of
def cluster_use(cluster_name: str, node_type: str) -> None:
    """Write jobs/environment.sh for the cluster NAME: what the job scripts source when you submit them by hand."""
    from hpc_utils import paths
    from hpc_utils.launch import allocation, job_environment
    from hpc_utils.launch import cluster as clusters
    from hpc_utils.launch.request import Layout
    from hpc_utils.records import atomic

    found = clusters.read(cluster_name)
    if found.rehearsal:
        found = as_it_is(found)
    node = found.node(node_type)
    place = paths.jobs() / "environment.sh"
    atomic.write_text(place, job_environment.render(found, node, root=paths.root()))
    if found.rehearsal:
        options = [f"--partition={node.partition}", "--nodes=2", "--cpus-per-task=1"]
    else:
        options = allocation.options(found, node, Layout(2, allocation.ranks_per_node(found, node)))
    click.echo(f"{place}\n{shlex.join(['sbatch', *options, 'jobs/train.sbatch'])}")


@cluster.command("init")
@click.argument("cluster_name", metavar="[NAME]", default="")
def cluster_init(cluster_name: str) -> None:
    """Draft jobs/clusters/NAME.toml from the Slurm that this runs under; without NAME under the cluster's own.

    Every value says where it comes from; what Slurm does not know is marked FILL IN. No file is overwritten.
    """
    from hpc_utils.launch.cluster_draft import init

    path = init(cluster_name)
    missing = sum("FILL IN" in line for line in path.read_text().splitlines())
    click.echo(
        f"{path}: {missing} lines with FILL IN are yours; then hpc submit STUDY --cluster {path.stem} --dry-run"
    )


def _option(name: str) -> str:
    return "" if name == "rehearsal" else f" --name {name}"


def _find(name: str) -> Cluster:
    from hpc_utils import rehearsal

    if (found := rehearsal.find(name)) is None:
        raise rehearsal.ClusterError(f"cluster {name} is not up: `hpc cluster up{_option(name)}` starts it")
    return found
