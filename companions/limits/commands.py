"""`hpc bench storage`, which the core's command line finds here."""

from __future__ import annotations

import click

from hpc_utils.cli import common, doctor


def register(main: click.Group) -> None:
    """Add `storage` to `hpc bench`."""
    main.commands["bench"].add_command(bench_storage)


@click.command("storage")
@click.option("--dataset", default="cifar10", help="A data set that is here (`hpc data list`).")
@doctor.where_options(nproc=1, nodes=1, ranks_per_node=1)
@doctor.repeats_option
def bench_storage(dataset, cluster_name, repeats, **options):
    """Measure reading of the data set, and the time of the loader.

    Cold and warm, from the data folder, a disk of the node (storage.node_local of the cluster file, else TMPDIR) and
    memory (/dev/shm). Each gets a copy, which is removed at the end. The record is kept under results/probes/storage.
    """
    from hpc_utils.analyze.stats import columns
    from hpc_utils.publish.formatting import bracketed

    from .bench_tables import loader_times
    from .storage import require

    cluster = doctor.find_cluster(cluster_name)
    require(dataset)  # before a job is submitted
    arguments = [f"{__package__}.storage", f"--repeats={repeats}", f"--dataset={dataset}"]
    times = loader_times(doctor.measure_on_ranks(arguments, cluster, **options))
    click.echo("loader time per batch with its 95 % interval (ms):")
    rows = []
    for row in times.to_dict("records"):
        first, later = (
            bracketed(*(1e3 * row[column] for column in columns(name))) or "unknown"
            for name in ("first_seconds", "seconds")
        )
        rows.append([row["place"], str(row["batch"]), first, later, f"{row['rate']:,.0f}"])
    common.print_table(["place", "batch", "first epoch", "later epochs", "images/s"], rows)
