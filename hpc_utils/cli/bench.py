"""`hpc bench`: how fast computing, links and storage are, measured here or on a cluster's nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from .compute import compute
from .links import held_as_named
from .on_cluster import arrive, nodes_of

if TYPE_CHECKING:
    from hpc_utils.analyze.stats import Estimate
    from hpc_utils.launch.cluster import Cluster

cluster_of = click.option("--cluster", "cluster_name", metavar="NAME", help="Not here: in a job on its nodes.")
repeats_of = click.option(
    "--repeats", default=5, show_default=True, type=click.IntRange(1), help="Of every measurement, interleaved."
)
count = click.IntRange(1)


@click.group()
def bench() -> None:
    """How fast are the links, the storage, and a model's computing? A minute or two each.

    \b
    hpc bench allreduce --nproc 2                      ranks of this machine
    hpc bench allreduce --cluster leonardo --nodes 4   a job on four whole nodes
    hpc bench storage --cluster leonardo               the data set from a node's side
    hpc bench compute -p workload=resnet18 -p dataset=cifar10
    """


bench.add_command(compute)


@bench.command("allreduce")
@click.option("--nproc", default=2, show_default=True, type=click.IntRange(2), help="Ranks on this machine.")
@cluster_of
@nodes_of
@click.option("--nodes", default=2, show_default=True, type=count, help="Nodes of the cluster.")
@click.option("--ranks-per-node", type=count, help="On each of them; one a device by default.")
@repeats_of
@click.option("--largest", default=256, show_default=True, type=count, metavar="MiB", help="Message.")
def bench_allreduce(
    nproc: int,
    cluster_name: str | None,
    node_type: str,
    nodes: int,
    ranks_per_node: int | None,
    repeats: int,
    largest: int,
) -> None:
    """All-reduce time over message sizes; the latency and bandwidth that explain it.

    Of all ranks; where nodes have several, also of those inside a node and of one on each. What would take longer than
    about a minute is left out, and that is said. The record is kept under results/probes/allreduce.
    """
    from hpc_utils.analyze import link

    arguments = ["allreduce", f"--repeats={repeats}", f"--largest={largest}"]
    record = _measure(arguments, nproc, _arrive(cluster_name), node_type, (nodes, ranks_per_node or 0))
    for group in record["groups"]:
        try:
            found = link.fit(record, group)
        except ValueError as error:
            click.echo(f"no fit: {error}")
            continue
        latency = _interval(found.latency, 1e6, "us a message")
        click.echo(f"{group}: latency {latency}, bandwidth {_interval(found.bandwidth, 8e-9, 'Gbit/s')}")
        if found.caveat:
            click.secho(f"  {found.caveat}", fg="yellow")


@bench.command("storage")
@click.option("--dataset", default="cifar10", show_default=True, help="One that is here (`hpc data list`).")
@click.option("--nproc", default=1, show_default=True, type=count, help="Ranks on this machine.")
@cluster_of
@nodes_of
@click.option("--nodes", default=1, show_default=True, type=count, help="Nodes of the cluster.")
@click.option("--ranks-per-node", default=1, show_default=True, type=count, help="That read, on each of them.")
@repeats_of
def bench_storage(
    dataset: str, nproc: int, cluster_name: str | None, node_type: str, nodes: int, ranks_per_node: int, repeats: int
) -> None:
    """The data set read cold and warm, from every place a job can use; the loader time to expect from each.

    Places are the data folder, a disk of the node (storage.node_local of the cluster file, else TMPDIR) and memory
    (/dev/shm). Each gets a copy of its own, removed at the end. The record is kept under results/probes/storage.
    """
    from hpc_utils.analyze import storage
    from hpc_utils.doctor.bench.storage import require

    arguments = ["storage", f"--repeats={repeats}", f"--dataset={dataset}"]
    found = _arrive(cluster_name)
    require(dataset)  # refused before anything starts
    record = _measure(arguments, nproc, found, node_type, (nodes, ranks_per_node))
    click.echo("loader time to expect per batch, with its 95 % interval (ms):")
    click.echo(f"  {'place':10}  {'batch':>5}  {'first epoch':>22}  {'later epochs':>22}  {'images/s':>9}")
    for row in storage.loader(record).itertuples():
        first = _milliseconds(row.first_seconds, row.first_low, row.first_high)
        later = _milliseconds(row.seconds, row.low, row.high)
        click.echo(f"  {row.place:10}  {row.batch:5}  {first:>22}  {later:>22}  {row.rate:9,.0f}")
    for row in storage.reads(record).itertuples():
        if row.state == "cached" and row.filesystem not in storage.IN_MEMORY:
            click.secho(f"  {row.place}, {row.pattern}: not cold, though asked to be: a cache serves it", fg="yellow")


def _arrive(cluster_name: str | None) -> Cluster | None:
    return arrive(cluster_name)[0] if cluster_name else None


def _measure(
    arguments: list[str], nproc: int, found: Cluster | None, node_type: str, layout: tuple[int, int]
) -> Mapping[str, Any]:
    """The record; what the ranks print is shown."""
    from hpc_utils.launch import diagnostics

    if not found:
        return diagnostics.on_this_machine(diagnostics.BENCH, nproc, arguments)
    said, record = diagnostics.on_cluster(
        diagnostics.BENCH, found, node_type, layout, arguments, lambda line: click.echo(line, err=True),
        measuring=held_as_named(found, f"hpc bench {arguments[0]}"),
    )  # fmt: skip
    click.echo(said)
    return record


def _interval(estimate: Estimate, scale: float, unit: str) -> str:
    """`92.1 [90.3, 93.8] Gbit/s`."""
    value, low, high = (scale * number for number in estimate[:3])
    return f"{value:.3g} [{low:.3g}, {high:.3g}] {unit}"


def _milliseconds(*seconds: float) -> str:
    """`4.36 [3.51, 5.42]`; `4.36` without an interval, `not known` without a value."""
    value, low, high = (1e3 * number for number in seconds)
    if math.isnan(value):
        return "not known"
    return f"{value:.3g}" if math.isnan(low) else f"{value:.3g} [{low:.3g}, {high:.3g}]"
