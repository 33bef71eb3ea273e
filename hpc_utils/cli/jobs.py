"""`hpc plan`, `submit`, `status`, `logs`, `cancel`, `retry`, `pull`: a study on a cluster."""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpc_utils import paths
from hpc_utils.plural import counted

from .common import (
    Finite,
    as_rehearsed,
    cluster_option,
    connect,
    connect_to_submissions,
    enter_cluster,
    node_type_option,
    planned_repeats,
    print_ceilings,
    print_refused,
    redo_options,
    tell,
    variant_options,
    warn,
)

if TYPE_CHECKING:
    from hpc_utils.launch.request import Layout
    from hpc_utils.launch.status import Entry
    from hpc_utils.launch.submit import Draft

CLUSTER = "A file of jobs/clusters, by name or path."
COLOURS = {"COMPLETED": "green", "RUNNING": "cyan", "PENDING": "yellow"}


@click.command()
@click.argument("study")
@cluster_option(CLUSTER)
@node_type_option
@click.option(
    "--throughput", type=Finite(), metavar="X",
    help="Samples/s of training on one such device, measured elsewhere; for configurations that have not run there.",
)  # fmt: skip
@click.option(
    "--like", "gpu", metavar="GPU",
    help='For devices without runs: operations of the model over the peak rate of a GPU, such as "A100 40GB".',
)  # fmt: skip
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the resource table of a proposal.")
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="Also write the rows to FILE."
)
@variant_options
def plan(study, cluster_name, node_type, throughput, gpu, as_markdown, csv_file, variant):
    """Predict time and cost of STUDY on a cluster, with intervals.

    With a precision they are those of the further repeats that it takes. The basis is the runs measured there so far.
    Needs neither Slurm nor the data set: a laptop with the runs that `hpc pull` fetched is enough. Only the rehearsal
    cluster must be up, because its nodes are this machine.
    """
    from hpc_utils import records
    from hpc_utils.analyze import budget
    from hpc_utils.analyze.model.fit import predictor
    from hpc_utils.analyze.profiles import peaks
    from hpc_utils.launch import study as studies
    from hpc_utils.launch import submit
    from hpc_utils.launch.study_file import read_study_file
    from hpc_utils.publish import plan_table
    from hpc_utils.records import atomic, probes

    peak = peaks.find_peak(gpu) if gpu else None
    if gpu and peak is None:
        raise click.UsageError(
            f"--like {gpu}: unknown GPU; known: {', '.join(known_gpu.name for known_gpu in peaks.read_peaks())}"
        )
    read_study_file(study)  # an unknown one is refused without a cluster, too
    cluster, _ = enter_cluster(cluster_name, start=False)
    node = cluster.node(node_type)
    if peak and not node.gpus:
        raise click.UsageError(f"--like is for GPUs, and these nodes of {cluster.title} have none: use --throughput")
    target = submit.target_on(cluster, node, Path(study).stem, variant)
    planned = studies.plan(study, target, needs_data=False, further=planned_repeats(study, target))
    planned.require_points(cluster.title)
    if variant.precision:
        planned = replace(planned, points=[point for point in planned.points if point.request.state != "complete"])
        if not planned.points:
            click.echo(f"no ratio of {planned.study.title} has an interval wider than {variant.precision:g}")
            return
    run_records = records.load()
    print_refused(run_records.refused)
    links = cluster.network.link_gbit or math.inf
    points = budget.with_steps(studies.forecast(planned), run_records.runs)
    estimates = budget.estimate(
        points, run_records.runs, run_records.epochs,
        limit=cluster.slurm.seconds, throughput=throughput,
        predict=predictor(run_records.runs, run_records.epochs, probes.read_probes("compute"), gbit=links),
        roughly=budget.from_peak_rate(run_records.runs, peak) if peak else None,
    )  # fmt: skip
    prices = {planned.target.hardware: node}
    table = budget.budget_table(estimates, prices)
    total = budget.total(estimates, prices)
    if csv_file:
        atomic.write_text(csv_file, table.to_csv(index=False, lineterminator="\n"))
    write = plan_table.markdown if as_markdown else plan_table.plain
    caption = f"{planned.study.title} on {cluster.title} ({node.name}): expected [low, high]"
    notes = [*plan_table.table_notes(table, peak), *(f"{line}." for line in planned.impossible)]
    if variant.precision:
        notes.append(
            "The repeats are estimated from the present intervals; more follow where a ratio then is still wider."
        )
    click.echo(write(plan_table.resource_table(table, total), notes, caption))
    print_ceilings(planned)
    bases = set(estimates.basis)
    is_unknown = "time limit" in bases
    has_steps = all(point["steps"] for point in points)
    for option, basis, given in (("--throughput", "stated", throughput), ("--like", "operations", peak)):
        if given and basis not in bases:
            unknown = (
                "no run of these models has counted operations"
                if has_steps
                else "the length of an epoch is not known"
            )
            tell(f"{option} has no effect: {unknown if is_unknown else 'all have a better basis'}")
    if is_unknown:
        remedy = (
            f"give --throughput{' or --like' * (not peak)}" if has_steps else "set steps_per_epoch (not of a script)"
        )
        place = "" if has_steps else ", with --throughput on any machine"
        tell(f"hint: instead of the time limit, {remedy}, or measure one run{place}")
    return variant.name or planned.file.stem, estimates


@click.command()
@click.argument("study")
@cluster_option(CLUSTER)
@node_type_option
@click.option("--dry-run", is_flag=True, help="Show the plan and the commands; submit nothing.")
@variant_options
@redo_options
@click.option(
    "--turns", "in_turn", is_flag=True, help="One job makes all runs of a repeat, which take turns on its nodes."
)
@click.option("--wait", is_flag=True, help="Wait until all jobs have ended.")
def submit(study, cluster_name, node_type, dry_run, wait, variant, **options):
    """Submit the missing runs of STUDY to Slurm.

    They are submitted as job arrays, and behind them a job that writes the report. Complete runs, and those in the queue,
    are not submitted again. With --precision, further repeats are submitted only of the configurations whose ratios were
    measured with a wider interval; their number is estimated from it.
    """
    from hpc_utils.launch import cluster as clusters
    from hpc_utils.launch import slurm_commands
    from hpc_utils.launch import submit as submitting
    from hpc_utils.launch.study_file import read_study_file

    read_study_file(study)  # before a rehearsal cluster is started
    cluster, moved = enter_cluster(cluster_name, start=not dry_run, study=Path(study).stem)
    if marked := ", ".join(re.findall(r"^\w+(?= = .*# .*FILL IN)", clusters.file(cluster_name).read_text(), re.M)):
        warn(f"{cluster.source} has values to fill in: {marked}; set them, then remove their marks FILL IN")
    target = submitting.target_on(cluster, cluster.node(node_type), Path(study).stem, variant)
    options |= {"variant": variant, "further": planned_repeats(study, target)}
    if dry_run:
        try:
            queued = submitting.queued()
        except slurm_commands.SlurmError:  # a laptop
            tell("Slurm does not answer here: no run counts as queued")
            queued = {}
        draft = submitting.draft(study, cluster, node_type, queued=queued, **options)
        _print_draft(draft)
        click.echo("\n".join(submitting.commands(draft)))
        return
    draft, submission = submitting.submit(study, cluster, node_type, announce=_print_draft, **options)
    index = draft.plan.name
    if submission is None:
        next_step = "`hpc status {}` follows them" if draft.queued else "`hpc report {}` draws the figures"
        tell(f"nothing to submit: {next_step.format(index)}")
        return
    tell(f"submitted {', '.join(submission.job_ids)}; follow them with: hpc status {index}")
    tell(f"the last job writes {paths.results() / 'report' / index / 'index.html'}")
    for name, folder in moved.items():
        click.echo(
            f"export {name}={shlex.quote(folder)}   # for hpc status, collect, report: where {cluster.name} has it"
        )
    if wait:
        sys.exit(1 if any(entry.has_failed for entry in _wait(index)) else 0)


@click.command()
@click.argument("study", required=False)
@click.option("--watch", is_flag=True, help="Print each change of state until all have ended.")
@click.option("--all", "everything", is_flag=True, help="Include complete runs.")
def status(study, watch, everything):
    """Show submitted runs and jobs, with remedies for failed ones."""
    if watch:
        _wait(study)
        return
    status_entries = present_entries(study)
    if not status_entries:
        raise click.UsageError(
            f"no submission{f' of {study!r}' if study else ', and no job in the queue that was submitted in this clone'}: "
            "`hpc submit STUDY --cluster NAME` makes one; `hpc study plan STUDY` lists runs on this machine"
        )
    for entry in status_entries:
        if entry.state == "COMPLETED" and not everything:
            continue
        details = [entry.detail]
        if entry.left is not None:
            details.append(f"about {timedelta(seconds=round(entry.left))} left")
        if entry.time_left is not None:
            details.append(f"limit in {timedelta(seconds=entry.time_left)}")
        if entry.state == "RUNNING":
            details.append(entry.nodes)
        _print_entry(entry, ", ".join(filter(None, details)))
        if entry.advice:
            click.secho(f"{'':24} -> {entry.advice}", dim=True)
    _print_counts(status_entries)


@click.command()
@click.argument("target", metavar="RUN|JOB|STUDY")
@click.option("-n", "--lines", default=40, help="Last lines of each log; 0: all.")
def logs(target, lines):
    """Show the logs of a run, a job, or the failed runs of a study."""
    matching_entries = [
        entry for entry in _meant(target, present_entries()) if entry.has_failed or target in entry_names(entry)
    ]
    files = [entry.log for entry in matching_entries if entry.log.is_file()]
    for run in sorted({target, *(entry.run_id for entry in matching_entries)}):
        files += sorted(paths.runs().glob(f"{run}/logs/*.log"))
    if not files:
        raise click.UsageError(
            f"no log of {target!r}: give a run, a job, or a study with failed runs (`hpc status --all` lists them)"
        )
    for path in files:
        click.secho(f"==> {path}", bold=True)
        click.echo("\n".join(path.read_text(errors="replace").splitlines()[-lines:]))


@click.command()
@click.argument("targets", metavar="STUDY|JOB", nargs=-1, required=True)
def cancel(targets):
    """Cancel the jobs of a study, or jobs by their ids. Runs write a checkpoint first; `hpc retry` resumes them."""
    from hpc_utils.launch import slurm_commands

    status_entries = present_entries()
    chosen = set()
    for word in targets:
        if not (meant := _meant(word, status_entries)):
            raise click.UsageError(
                f"no job of {word!r}: give a study, a run or a job (`hpc status --all` lists them)"
            )
        chosen |= {entry.job for entry in meant if not entry.is_over}
    slurm_commands.scancel(sorted(chosen))
    click.echo(f"{len(chosen)} cancelled")


def present_entries(study: str | None = None) -> list[Entry]:
    """`launch.status.entries`, on the clusters that are up."""
    from hpc_utils.launch.status import entries

    return entries(study, gone=connect_to_submissions(study))


def _meant(word: str, entries: list[Entry]) -> list[Entry]:
    """Those of a study, a run or a job."""
    from hpc_utils.launch.submit import submissions

    names = {word, *(submission.index for submission in submissions(word))}
    return [entry for entry in entries if names & {entry.study, *entry_names(entry)}]


def entry_names(entry: Entry) -> set[str]:
    """The run, the task of the job array, and the array."""
    return {entry.run_id, entry.job, entry.job.partition("_")[0]}


@click.command()
@click.argument("study", required=False)
def retry(study):
    """Submit failed and cancelled runs again. They resume from their checkpoints; scripts start again."""
    from hpc_utils.launch import cluster as clusters
    from hpc_utils.launch import submit as submitting
    from hpc_utils.launch.study_file import StudyError
    from hpc_utils.records.folder import state

    submitted = submitting.submissions(study)
    if not submitted:
        raise click.UsageError(f"no submission{f' of {study!r}' if study else ''}")
    unfinished = {  # once of each selection of runs
        submission.model_dump_json(exclude={"job_name", "jobs"}): submission
        for submission in submitted
        for task in submission.tasks
        if task.run_id and state(paths.runs() / task.run_id) != "complete"
    }.values()
    connect(any(submission.is_rehearsed for submission in unfinished))
    run_ids = {task.run_id for submission in submitted for task in submission.tasks}
    resubmitted = set()
    for submission in unfinished:
        cluster = as_rehearsed(clusters.read_cluster(submission.cluster))
        try:
            draft, resubmission = submitting.submit(
                submission.source, cluster, submission.node_type, **submission.selection,
                submitted=run_ids,
            )  # fmt: skip
        except StudyError as error:  # edited since; the others go on
            warn(f"{error}: submit it again yourself")
            continue
        if resubmission:
            resubmitted.add(submission.index)
            click.echo(f"{submission.index}: {draft.runs} submitted again: {', '.join(resubmission.job_ids)}")
    for index in dict.fromkeys(submission.index for submission in submitted):
        if index in resubmitted:
            continue
        advice = next((entry.advice for entry in present_entries(index) if entry.run_id == "report"), "")
        click.echo(f"{index}: nothing to submit again{advice and f'; for its report {advice}'}")


@click.command()
@click.argument("source", metavar="HOST:RESULTS")
@click.option("--no-profiles", is_flag=True, help="Without the profiles: some megabytes a rank.")
def pull(source, no_profiles):
    """Fetch complete runs from a cluster by rsync, and verify each.

    \b
    hpc pull leonardo:/leonardo_work/me/compendium/results
    """
    from hpc_utils.launch.pull import pull as fetch

    done = fetch(source, profiles=not no_profiles)
    print_refused(done.refused)
    click.echo(
        f"{counted(len(done.fetched), 'run')} fetched, {done.present} were here, {done.unfinished} are not complete there"
    )
    sys.exit(1 if done.refused else 0)


def _print_draft(draft: Draft) -> None:
    """What each array holds, what is complete, what cannot run here, the maximum cost, and the ceiling."""
    plan = draft.plan
    node = draft.node
    click.secho(f"{plan.study.title} on {plan.target.hardware}", bold=True)
    by_layout: dict[Layout, list[int]] = {}
    for group in draft.groups:
        by_layout.setdefault(group.layout, []).append(len(group.requests))
    for layout, runs in sorted(by_layout.items(), key=lambda item: item[0].ranks):
        ranks = f"{layout.nodes} x {layout.ranks_per_node} ranks"
        click.echo(f"  {counted(sum(runs), 'run'):>9} of {ranks}, in {counted(len(runs), 'array job')}")
    for line in plan.impossible:
        click.secho(f"  {line}", dim=True)
    cost = f" ({draft.cost:.1f} {node.unit})" if node.unit != "node-hours" or node.price != 1 else ""
    counts = f"{len(draft.complete)} complete, {len(draft.queued)} in the queue, {draft.runs} to submit"
    click.echo(f"  {counted(len(plan.requests), 'run')}: {counts}; at most {draft.node_hours:.1f} node-hours{cost}")
    print_ceilings(plan)


def _print_entry(entry: Entry, details: str) -> None:
    click.secho(f"{entry.state:13}", fg=COLOURS.get(entry.state, "red"), nl=False)
    click.echo(f" {entry.job:10} {entry.run_id}  {details}")


def _print_counts(entries: list[Entry]) -> None:
    counts = Counter(entry.state for entry in entries)
    click.echo(", ".join(f"{number} {state}" for state, number in counts.items()))


def _wait(study: str | None) -> list[Entry]:
    """Print each change of state until all runs have ended."""
    from hpc_utils.launch.slurm_commands import pauses
    from hpc_utils.launch.status import entries

    gone = connect_to_submissions(study)
    before: dict[tuple[str, str], str] = {}
    for pause in pauses():
        status_entries = entries(study, gone=gone)
        for entry in status_entries:
            if before.get(name := (entry.study, entry.run_id)) != entry.state:
                before[name] = entry.state
                _print_entry(entry, entry.detail)
        if all(entry.is_over for entry in status_entries):
            break
        time.sleep(pause)
    _print_counts(status_entries)
    return status_entries
