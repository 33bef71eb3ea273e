"""`hpc cluster`: a rehearsal cluster on this machine, and files that describe clusters."""

from __future__ import annotations

import shlex
import signal

import click

from .common import as_rehearsed, node_type_option


def _find(context, option, name):
    """The running cluster of that name.

    Raises:
        ClusterError: it is not up.
    """
    from hpc_utils import rehearsal

    if (running_cluster := rehearsal.find_cluster(name)) is None:
        raise rehearsal.ClusterError(f"cluster {name} is not up: `hpc cluster up{_option(name)}` starts it")
    return running_cluster


def _option(name: str) -> str:
    return "" if name == "rehearsal" else f" --name {name}"


named = click.option("--name", default="rehearsal", help="Name of the cluster: several can be up at once.")
running = click.option("--name", "running_cluster", default="rehearsal", callback=_find, help="Name of the cluster.")


@click.group()
def cluster():
    """Run a real Slurm on this machine; draft cluster files.

    \b
    hpc cluster up                                 munge, Slurm, accounting; two nodes with four stand-ins for GPUs
    eval "$(hpc cluster env)"                      then sbatch, srun, squeue, sacct as on any cluster
    hpc cluster shape --rate 1gbit                 slower links between the nodes
    hpc cluster up --nodes 12 --cores-per-node 0.14    twelve devices on two cores
    hpc cluster down                               ends all its processes
    """


@cluster.command("up")
@named
@click.option("--nodes", default=2, help="Nodes; each gets its share of this machine's cores.")
@click.option(
    "--cores-per-node", type=float, metavar="SHARE",
    help="Make each node one device with this share of a core, such as 0.14, which the kernel enforces for ranks.",
)  # fmt: skip
@click.option("--cpus", default=8, help="CPUs that each node has for Slurm.")
@click.option("--gpus", default=4, help="Stand-ins for GPUs that each node has for Slurm.")
def cluster_up(name, nodes, cores_per_node, cpus, gpus):
    """Start a cluster on this machine.

    It has munged, MariaDB, slurmdbd, slurmctld, and a slurmd on each node. With root each node has a host name, an
    address, processes and a link of its own. Jobs keep to their node's share of the cores. More nodes than cores are
    valid devices with --cores-per-node, if the shares on a core add up to at most 90 %; other measurements on them are
    recorded as oversubscribed and excluded from scaling figures.
    """
    from hpc_utils import device_share, rehearsal

    if cores_per_node and (why := device_share.unavailable()):
        raise click.UsageError(f"--cores-per-node {cores_per_node:g}: {why}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up as for Ctrl-C
    started = rehearsal.up(
        name, nodes=nodes, cpus=cpus, gpus=gpus, share=cores_per_node,
        progress=lambda step, seconds: click.echo(f"{seconds:6.1f} s  {step}"),
    )  # fmt: skip
    click.echo(f"{name} is up: {', '.join(started.nodes)}{' on this host (flat)' if started.flat else ''}")
    if started.oversubscribed:
        warning = (
            "The nodes have more cores than this machine: timings are invalid. --cores-per-node gives each a share."
        )
        click.secho(warning, fg="yellow")
    name_option = _option(name)
    click.echo(f'\n  eval "$(hpc cluster env{name_option})"    # then sbatch, squeue, sacct as usual')
    click.echo(f"  hpc submit strong --cluster rehearsal\n  hpc cluster down{name_option}")


@cluster.command("down")
@named
def cluster_down(name):
    """End a cluster and all its processes. Also removes the files of a killed one."""
    from hpc_utils import rehearsal

    ended = rehearsal.down(name)
    click.echo(f"{name}: ended {', '.join(ended)}" if ended else f"{name} is not up: there is nothing to end")


@cluster.command("status")
@running
def cluster_status(running_cluster):
    """Show its nodes as Slurm sees them, its links and its daemons."""
    status = running_cluster.status()
    for node, state in status.nodes.items():
        click.echo(f"{node:10} {state:12} {running_cluster.address(node)}")
    links = "flat, without links" if running_cluster.flat else f"links {status.rate or 'not limited'}"
    holders = f", held for {', '.join(status.held)}" if status.held else ""
    click.echo(f"{links}{holders}; running: {', '.join(daemon for daemon, alive in status.daemons.items() if alive)}")


@cluster.command("env")
@running
def cluster_env(running_cluster):
    """Print the variables by which Slurm's commands reach it."""
    for variable, value in running_cluster.environment().items():
        click.echo(f"export {variable}={shlex.quote(value)}")


@cluster.command("kill-node")
@click.argument("node")
@running
def cluster_kill_node(node, running_cluster):
    """Kill all processes of NODE at once, as a power failure does. Slurm notices within 15 s and requeues its jobs."""
    running_cluster.kill_node(node)
    click.echo(f"{node} has no power; `hpc cluster revive-node {node}{_option(running_cluster.name)}` restores it")


@cluster.command("revive-node")
@click.argument("node")
@running
def cluster_revive_node(node, running_cluster):
    """Start NODE again, and wait until Slurm accepts it."""
    running_cluster.revive_node(node)
    click.echo(f"{node} is ready")


@cluster.command("shape")
@click.option("--rate", required=True, metavar="RATE", help="Such as 100mbit or 2.5gbit; none lifts the limit.")
@running
def cluster_shape(rate, running_cluster):
    """Limit the bandwidth of each node's link, in each direction."""
    running_cluster.shape(None if rate == "none" else rate)
    click.echo("the links are not limited" if rate == "none" else f"every node's link: {rate} each way")


@cluster.command("show")
@click.argument("cluster_name", metavar="NAME")
def cluster_show(cluster_name):
    """Show what the cluster NAME has, by the keys of its file (jobs/README.md): its types of nodes side by side, then network,
    storage and software."""
    import pandas as pd

    from hpc_utils.launch import cluster as clusters

    site = clusters.read_cluster(cluster_name)
    nodes = {name: node.model_dump(exclude_defaults=True, exclude={"variables"}) for name, node in site.nodes.items()}
    click.echo(f"{site.title}\n{site.about.strip()}\n\n{pd.DataFrame(nodes).fillna('').to_string()}\n")
    for name in ("network", "storage", "software"):
        facts = getattr(site, name).model_dump(exclude_defaults=True)
        click.echo(
            f"{name}: {', '.join(f'{key} = {value}' for key, value in facts.items()) or 'as the clone has it'}"
        )


@cluster.command("use")
@click.argument("cluster_name", metavar="NAME")
@node_type_option
def cluster_use(cluster_name, node_type):
    """Write jobs/environment.sh for the cluster NAME.

    The job scripts source it when you submit them by hand.
    """
    from hpc_utils import paths
    from hpc_utils.launch import cluster as clusters
    from hpc_utils.launch import job_environment
    from hpc_utils.launch.request import Layout
    from hpc_utils.records import atomic

    site = as_rehearsed(clusters.read_cluster(cluster_name))
    node = site.node(node_type)
    target = paths.jobs() / "environment.sh"
    atomic.write_text(target, job_environment.render(site, node, root=paths.root()))
    if site.rehearsal:
        options = [f"--partition={node.partition}", "--nodes=2", "--cpus-per-task=1"]
    else:
        options = job_environment.options(site, node, Layout(2, job_environment.ranks_per_node(site, node)))
    click.echo(f"{target}\n{shlex.join(['sbatch', *options, 'jobs/train.sbatch'])}")
