"""`hpc plan`: what a study will take on a cluster, before anything of it runs."""

from __future__ import annotations

import math
from pathlib import Path

import click

from .on_cluster import as_it_is, connect, nodes_of, use


@click.command()
@click.argument("study")
@click.option(
    "--cluster", "cluster_name", required=True, metavar="NAME", help="A file of jobs/clusters, or a path to one."
)
@nodes_of
@click.option(
    "--seconds-per-epoch", type=click.FloatRange(0, min_open=True), metavar="X",
    help="Of a pass over the study's data on one such device, measured elsewhere: for what has not run there.",
)  # fmt: skip
@click.option(
    "--like", "gpu", metavar="GPU",
    help='Where nothing ran: the operations of the model over the peak rate of this GPU, such as "A100 40GB".',
)  # fmt: skip
@click.option("--markdown", "as_markdown", is_flag=True, help="The resource table of a proposal.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the rows there too.")
def plan(
    study: str,
    cluster_name: str,
    node_type: str,
    seconds_per_epoch: float | None,
    gpu: str | None,
    as_markdown: bool,
    csv_file: Path | None,
) -> None:
    """Predict hours, node-hours and cost of STUDY with their intervals, from what was measured there so far.

    Needs neither Slurm nor the data set: a laptop will do, with the runs that `hpc pull` brought. Only the rehearsal
    cluster, whose nodes are this machine, is started if it is not up (`hpc cluster down` ends it).
    """
    from hpc_utils import paths, records
    from hpc_utils.analyze import budget, peak_rate
    from hpc_utils.analyze.predictor import predictor
    from hpc_utils.analyze.profiles import peaks
    from hpc_utils.launch import cluster, job_environment, submit
    from hpc_utils.launch import study as studies
    from hpc_utils.publish import proposal
    from hpc_utils.records import atomic, probes

    peak = peaks.find(gpu) if gpu else None
    if gpu and peak is None:
        raise click.UsageError(f"--like {gpu}: no such GPU; known are {', '.join(peaks.table().name)}")
    found = cluster.read(cluster_name)
    node = found.node(node_type)
    connect(found.rehearsal)
    found = as_it_is(found)
    try:
        use(job_environment.folders(found))
    except cluster.ClusterError as elsewhere:  # its folders are named by variables that only the cluster has
        click.echo(f"{elsewhere}: the runs in {paths.results()} are looked at instead", err=True)
    planned = studies.plan(study, submit.target_on(found, node, Path(study).stem), needs_data=False)
    if not planned.points:
        raise studies.StudyError(f"{study}: nothing of it can run on {found.title}: {'; '.join(planned.impossible)}")
    known = records.load()
    for name, why in known.refused.items():
        click.secho(f"refused {name}: {why}", fg="red", err=True)
    links = found.network.link_gbit or math.inf
    estimates = budget.estimate(
        studies.forecast(planned), known.runs, known.epochs,
        limit=found.slurm.seconds, seconds_per_epoch=seconds_per_epoch,
        predict=predictor(known.runs, known.epochs, probes.read("compute"), gbit=links),
        roughly=peak_rate.predictor(known.runs, peak) if peak else None,
    )  # fmt: skip
    prices = {planned.target.hardware: node}
    table, total = budget.table(estimates, prices), budget.total(estimates, prices)
    if csv_file:
        atomic.write_text(csv_file, table.to_csv(index=False, lineterminator="\n"))
    draw = proposal.markdown if as_markdown else proposal.plain
    caption = f"{planned.study.title} on {found.title} ({node.name}): expected [low, high]"
    notes = proposal.notes(table, planned.impossible)
    if peak and "operations" in set(estimates.basis):
        notes.append(f"The like device is {peak.name}: {peak.source}.")
    click.echo(draw(proposal.cells(table, total), notes, caption))
    if "time limit" in set(estimates.basis):
        click.echo(
            "hint: where only the time limit is known, measure one configuration there first, or give "
            "--seconds-per-epoch or --like",
            err=True,
        )
