"""`hpc guide` and `hpc bench collectives`, which the core's command line finds here."""

from __future__ import annotations

import io
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import click

from hpc_utils import paths
from hpc_utils.cli import common, doctor, jobs


def register(main: click.Group) -> None:
    """Add `hpc guide`, and `collectives` to `hpc bench`."""
    main.add_command(guide)
    main.commands["bench"].add_command(bench_collectives)


@click.command()
@click.argument("cluster_name", metavar="CLUSTER")
@common.results_option(f"Measured there: {common.SET}")
@click.option(
    "--device-hours", default=12.0, type=common.Finite(), help="The work to plan: of training on the smallest option."
)
@click.option(
    "--plan",
    metavar="WORDS",
    default="",
    help='Of `hpc plan`, whose options are added: "strong --throughput 2500".',
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Instead of results/guide/CLUSTER.md.")
def guide(cluster_name, folder, device_hours, plan, output):
    """Write the guide of CLUSTER as a page of Markdown.

    Hardware and libraries as the cluster file and `hpc doctor` say, the options measured or planned there from fastest to slowest, how to launch,
    monitor and cancel them, settings of NCCL, the recommended configurations, and the collectives. It says what was not measured.

    \b
    hpc guide rehearsal --results rehearsal
    """
    from hpc_utils.launch.cluster import read_cluster
    from hpc_utils.records import atomic

    from . import page

    results = folder or paths.results()
    output = output or paths.results() / "guide" / f"{Path(cluster_name).stem}.md"
    planned = None
    if plan:
        try:
            words = shlex.split(plan)
        except ValueError as error:
            raise click.BadParameter(f"{plan!r}: {error}", param_hint="--plan") from None
        common.set_variables({"HPC_RESULTS": str(results)})
        with redirect_stdout(io.StringIO()):
            planned = jobs.plan.main([*words, "--cluster", cluster_name], standalone_mode=False, prog_name="hpc plan")
    site = page.Site.read(read_cluster(cluster_name), results)
    atomic.write_text(output, page.guide_page(site, device_hours, planned))
    click.echo(output)


@click.command("collectives")
@doctor.where_options(nproc=2, nodes=2)
@doctor.repeats_option
def bench_collectives(cluster_name, repeats, **options):
    """Measure all-reduce, broadcast, reduce, all-gather and reduce-scatter.

    The record is kept under results/probes/collectives, and `hpc guide` shows it.
    """
    arguments = [f"{__package__}.collectives", f"--repeats={repeats}"]
    doctor.measure_on_ranks(arguments, doctor.find_cluster(cluster_name), **options)
