"""`hpc doctor`, `hpc diagnose` and `hpc bench`: is a machine ready to measure, why did a job fail, and how fast is it?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from hpc_utils.plural import counted

from .common import (
    POSITIVE,
    cluster_option,
    enter_cluster,
    node_type_option,
    numbers,
    parameters_option,
    printable,
    tell,
)

if TYPE_CHECKING:
    from hpc_utils.launch.cluster import Cluster
    from hpc_utils.launch.symptoms import Finding

LONGEST = 300  # characters of a log's line that are shown


repeats_option = click.option("--repeats", default=5, type=POSITIVE, help="Of each measurement.")


def where_options(nproc: int, nodes: int, ranks_per_node: int = 0) -> Callable:
    """The options that place the ranks, with their defaults; the command passes them to `measure_on_ranks`."""

    def add(command: Callable) -> Callable:
        help = "Of the cluster; 0: one per device."
        command = click.option("--ranks-per-node", default=ranks_per_node, type=click.IntRange(0), help=help)(command)
        command = click.option("--nodes", default=nodes, type=POSITIVE, help="Nodes of the cluster.")(command)
        command = cluster_option("Measure in a job on the nodes of this cluster.")(node_type_option(command))
        return click.option("--nproc", default=nproc, type=click.IntRange(nproc), help="Ranks on this machine.")(
            command
        )

    return add


def measure_on_ranks(
    arguments, cluster: Cluster | None, nproc, node_type, nodes, ranks_per_node, launcher: str = ""
) -> dict[str, Any]:
    """Run the ranks of a bench (or, without `arguments`, of the doctor), which print what they measure; the record of rank 0.

    During a bench the links of a rehearsal cluster keep the rate that its hardware id names.

    Raises:
        ClusterError: another measurement holds these links at another rate.
    """
    from hpc_utils import rehearsal
    from hpc_utils.launch import diagnostics

    diagnostic = diagnostics.BENCH if arguments else diagnostics.DOCTOR
    measuring = nullcontext()
    if arguments and cluster and cluster.machine.links is not None:
        measuring = rehearsal.around().holding(cluster.machine.links or None, by=f"hpc bench {arguments[0]}")
    arguments = arguments or diagnostics.doctor_arguments(cluster)
    arguments = [*arguments, *[f"--launcher={launcher}"] * bool(launcher)]
    if not cluster:
        return diagnostics.on_this_machine(diagnostic, nproc, arguments, launcher)
    size = nodes, ranks_per_node
    output, record = diagnostics.on_cluster(
        diagnostic, cluster, node_type, size, arguments, tell, measuring, launcher
    )
    click.echo(output)
    return record


def find_cluster(name: str | None) -> Cluster | None:
    return enter_cluster(name)[0] if name else None


@click.command()
@where_options(nproc=1, nodes=2)
def doctor(cluster_name, **options):
    """Check whether this machine, or a cluster, is ready to measure.

    In at most two minutes it checks driver and torch, devices and cores, network, storage, Slurm and clocks. Each check
    gives pass, fail or unknown, with what to do. The report is kept under results/doctor. The exit code is 1 if a check
    fails.
    """
    report = measure_on_ranks([], find_cluster(cluster_name), **options)
    sys.exit(1 if report["verdict"] == "fail" else 0)


@click.command()
@click.argument(
    "logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True, path_type=Path)
)
def diagnose(logs):
    """Name the first cause of a failure in logs.

    LOG: of Slurm, torchrun or MPI; a folder with those of several ranks or nodes; or - for standard input. Shows what failed, the line, the
    fix and a source, then what follows from it. The exit code is 0 if nothing failed, 1 for a known cause, and 4 if
    the failure is not recognised.

    \b
    hpc diagnose slurm-1234.out
    hpc diagnose rank*.log
    """
    from hpc_utils.launch import symptoms

    files = [file for log in logs for file in (sorted(log.rglob("*")) if log.is_dir() else [log])]
    with ExitStack() as stack:
        opened = (
            (str(file), stack.enter_context(click.open_file(file, "rb"))) for file in files if not file.is_dir()
        )
        findings = symptoms.diagnose(opened)
    failed = [finding for finding in findings if finding.kind != symptoms.Kind.HINT]
    if failed:
        _print_finding(failed[0], "red")
        for finding in failed[1:]:
            if finding.is_consequence:
                continue
            click.secho(f"beside it, {counted(finding.times, 'line')}: {finding.symptom.title}", dim=True)
            _print_line(finding)
    else:
        click.secho("no sign of a failure", fg="green")
        click.echo("  if it failed: `scontrol show job JOB` names its other log (StdErr), `sacct -j JOB` its state")
    for hint in findings[len(failed) :]:
        _print_finding(hint, "yellow")
    sys.exit(0 if not failed else 1 if failed[0].is_known else 4)


def _print_finding(finding: Finding, colour: str) -> None:
    click.secho(finding.symptom.title, fg=colour, bold=True)
    _print_line(finding)
    click.echo(f"  fix: {finding.fix}")
    if finding.symptom.source:
        click.echo(f"  source: {finding.symptom.source}")


def _print_line(finding: Finding) -> None:
    line = printable(finding.text)
    click.echo(f"  {finding.log}:{finding.line}: {line if len(line) <= LONGEST else line[:LONGEST] + '...'}")


@click.group()
def bench():
    """Measure links, or the compute time of a model.

    \b
    hpc bench allreduce --nproc 2                      ranks of this machine
    hpc bench allreduce --cluster leonardo --nodes 4   a job on four whole nodes
    hpc bench compute -p workload=resnet18 -p dataset=cifar10
    """


@bench.command("allreduce")
@where_options(nproc=2, nodes=2)
@repeats_option
@click.option("--largest", default=256, type=POSITIVE, metavar="MiB", help="Message size.")
def bench_allreduce(cluster_name, repeats, largest, launcher="", **options):
    """Measure all-reduce over message sizes.

    Latency and bandwidth are fitted. Between all ranks, and if nodes have several, also within each node and between
    one rank of each. Sizes that would take longer than about a minute are skipped. The record is kept under
    results/probes/allreduce.
    """
    from hpc_utils.analyze.model import links
    from hpc_utils.publish.formatting import bracketed

    arguments = ["allreduce", f"--repeats={repeats}", f"--largest={largest}"]
    record = measure_on_ranks(arguments, find_cluster(cluster_name), launcher=launcher, **options)
    for group in record["groups"]:
        fit = links.fit(record, group)
        if fit.latency.repeats:
            latency = bracketed(*(1e6 * seconds for seconds in fit.latency[:3]))
            bandwidth = bracketed(*(8e-9 * rate for rate in fit.bandwidth[:3]))
            click.echo(f"{group}: latency {latency} us a message, bandwidth {bandwidth} Gbit/s")
        if fit.caveat:
            click.secho(f"{group}: {fit.caveat}", fg="yellow")


@bench.command("compute")
@parameters_option()
@click.option(
    "--batches",
    default="8,16,32,64",
    metavar="N,N...",
    callback=numbers,
    help="Samples in a step, separated by commas.",
)
@repeats_option
def bench_compute(parameters, batches, repeats):
    """Measure the compute time of a model on one device.

    It is measured here, without a process group. For each batch size: the seconds of data, forward, backward and
    optimizer, and when in the backward pass each gradient is ready; with -p step_graph=true those of the whole captured step.
    The performance model and the ceiling of strong scaling read this record.

    \b
    hpc bench compute -p workload=resnet18 -p dataset=cifar10 --batches 8,16,32,64
    """
    import pandas as pd

    from hpc_utils.config import RunConfig
    from hpc_utils.doctor.bench import compute
    from hpc_utils.records.folder import read_json

    path = compute.profile(RunConfig(**parameters), batches, repeats, tell)
    measured = pd.DataFrame(read_json(path)["batches"]).set_index("batch")
    medians = 1e3 * measured.map(median)  # of the phases, or of the whole step if it was captured
    click.echo(medians.add_suffix(" (ms)").to_string(float_format="{:.2f}".format))
    click.echo(path)
