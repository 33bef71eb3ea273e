"""`hpc submit`, `status`, `logs`, `cancel`, `retry`, `pull`: a study's life on a cluster."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from .on_cluster import arrive, as_it_is, connect, connect_to_submissions, nodes_of

if TYPE_CHECKING:
    from hpc_utils.launch.status import Entry
    from hpc_utils.launch.submit import Draft

COLOURS = {"COMPLETED": "green", "RUNNING": "cyan", "PENDING": "yellow"}


@click.command()
@click.argument("study")
@click.option("--cluster", "cluster_name", metavar="NAME", help="A file of jobs/clusters, or a path to one.")
@nodes_of
@click.option("--dry-run", is_flag=True, help="Show the plan and the commands; submit nothing.")
@click.option("--local", "locally", is_flag=True, help="Without Slurm: on this machine, now.")
@click.option("--redo", is_flag=True, help="Measure again what is complete.")
@click.option("--wait", is_flag=True, help="Stay until all has ended.")
def submit(
    study: str, cluster_name: str | None, node_type: str, dry_run: bool, locally: bool, redo: bool, wait: bool
) -> None:
    """Submit what is missing of STUDY: arrays of runs, and its report behind them.

    Runs that are complete, or that an earlier submission still has in the queue, are left alone.
    """
    from hpc_utils.launch import cluster as clusters

    if locally:
        from hpc_utils.launch.study import execute
        from hpc_utils.publish.chapters import conclude

        if dry_run:
            click.get_current_context().invoke(_study_plan(), name=study)
            return
        conclude(execute(study, redo=redo))
        return
    if not cluster_name:
        raise click.UsageError(f"--cluster NAME (known are {', '.join(clusters.known())}), or --local")
    from hpc_utils.launch import submit as submitting

    found, moved = arrive(cluster_name)
    if dry_run:
        planned = submitting.draft(study, found, node_type, redo=redo)
        _show(planned)
        for line in submitting.commands(planned):
            click.echo(line)
        return
    planned, made = submitting.submit(study, found, node_type, redo=redo)
    _show(planned)
    if made is None:
        click.echo(f"nothing to submit: `hpc report {planned.index}` draws the figures", err=True)
        return
    click.echo(f"submitted {', '.join(made.job_ids)}; what becomes of them: hpc status {planned.index}", err=True)
    click.echo(f"at the end the report is written: {_report()}", err=True)
    for name, folder in moved.items():
        click.echo(
            f"export {name}={shlex.quote(folder)}   # for hpc status, collect, report: {found.name} keeps it there"
        )
    if wait:
        found_entries = _wait(planned.index)
        click.get_current_context().exit(1 if any(entry.has_failed for entry in found_entries) else 0)


@click.command()
@click.argument("study", required=False)
@click.option("--watch", is_flag=True, help="Renew it until all has ended.")
@click.option("--all", "everything", is_flag=True, help="Name the complete runs too.")
def status(study: str | None, watch: bool, everything: bool) -> None:
    """How submitted runs stand: waiting, running with time left, complete, or failed with why and what to do."""
    from hpc_utils.launch.status import entries

    gone = connect_to_submissions(study)
    if watch:
        _wait(study, gone)
        return
    found = entries(study, gone=gone)
    if not found:
        raise click.UsageError(
            f"nothing {f'of {study!r} ' if study else ''}was submitted yet: hpc submit STUDY --cluster NAME"
        )
    _table(found, everything=everything)


@click.command()
@click.argument("what", metavar="RUN|JOB|STUDY")
@click.option("-n", "--lines", default=40, show_default=True, help="How many of each log's last lines; 0: all.")
def logs(what: str, lines: int) -> None:
    """The logs of a run, a job, or of the failed runs of a study: Slurm's, the launcher's, and each rank's."""
    from hpc_utils import paths
    from hpc_utils.launch.status import entries

    gone = connect_to_submissions(None)
    found = [e for e in entries(gone=gone) if what in (e.job, e.run_id, e.job.partition("_")[0])]
    found = found or [e for e in entries(what, gone=gone) if e.has_failed]
    files = [entry.log for entry in found]
    runs = {entry.run_id for entry in found} | {what}
    files += [path for run in sorted(runs) for path in sorted((paths.runs() / run / "logs").glob("*.log"))]
    files = [path for path in files if path.is_file()]
    if not files:
        raise click.UsageError(
            f"no log of {what!r}: expected a run id, a job id, or a study (`hpc status --all` lists them)"
        )
    for path in files:
        click.secho(f"==> {path}", bold=True)
        text = path.read_text(errors="replace").splitlines()
        click.echo("\n".join(text[-lines:] if lines else text))


@click.command()
@click.argument("what", metavar="STUDY|JOB", nargs=-1, required=True)
def cancel(what: tuple[str, ...]) -> None:
    """End the jobs of a study, or jobs by their ids. Runs write a checkpoint first; `hpc retry` takes them up again."""
    from hpc_utils.launch import slurm_commands
    from hpc_utils.launch.status import entries
    from hpc_utils.launch.submission import submissions

    gone = connect_to_submissions(None)
    studies = {one.index for word in what for one in submissions(word)}
    chosen = [
        entry
        for entry in entries(gone=gone)
        if not entry.is_over
        and (entry.study in studies or {entry.job, entry.job.partition("_")[0], entry.run_id} & set(what))
    ]
    slurm_commands.scancel(entry.job for entry in chosen)
    click.echo(f"{len(chosen)} cancelled" if chosen else "none of these waits or runs")


@click.command()
@click.argument("study", required=False)
def retry(study: str | None) -> None:
    """Submit again what failed, timed out or was cancelled, on the cluster where it was; checkpoints are used."""
    from hpc_utils.launch import cluster
    from hpc_utils.launch import submit as submitting
    from hpc_utils.launch.submission import submissions

    connect("rehearsal" in connect_to_submissions(study))
    newest = {one.index: one for one in submissions(study)}
    if not newest:
        raise click.UsageError("nothing was submitted yet" + (f" of {study!r}" if study else ""))
    for one in newest.values():
        planned, made = submitting.submit(one.source, as_it_is(cluster.read(one.cluster)), one.node_type)
        again = f"{planned.runs} submitted again: {', '.join(made.job_ids)}" if made else "nothing to submit again"
        click.echo(f"{one.index}: {again}")


@click.command()
@click.argument("source", metavar="HOST:RESULTS")
@click.option("--dry-run", is_flag=True, help="Say what would be fetched.")
@click.option("--no-profiles", is_flag=True, help="Leave there what profilers saw: some megabytes a rank.")
def pull(source: str, dry_run: bool, no_profiles: bool) -> None:
    """Fetch complete runs from a cluster's results folder into this one, by rsync; each is verified before it counts.

    \b
    hpc pull leonardo:/leonardo_work/me/compendium/results
    """
    from hpc_utils.launch.pull import pull as fetch

    done = fetch(source, dry_run=dry_run, profiles=not no_profiles, say=lambda line: click.echo(line, err=True))
    for name, why in done.refused.items():
        click.secho(f"refused {name}: {why}", fg="red", err=True)
    verb = "to fetch" if dry_run else "fetched"
    click.echo(f"{len(done.fetched)} runs {verb}, {done.here} were here, {done.unfinished} are not complete there")
    if done.profiles:
        click.echo(f"{done.profiles / 1e6:.1f} MB of it are profiles")
    click.get_current_context().exit(1 if done.refused else 0)


def _study_plan() -> click.Command:
    from .study import study_plan

    return study_plan


def _report() -> str:
    from hpc_utils import paths

    return str(paths.results() / "report" / "index.html")


def _show(planned: Draft) -> None:
    """The plan: what each array holds, what is done, what cannot be run here, what it costs at most."""
    plan, node = planned.plan, planned.node
    click.secho(f"{plan.study.title} on {plan.target.hardware}", bold=True)
    for group in planned.groups:
        nodes, ranks = group.layout.nodes, group.layout.ranks_per_node
        click.echo(f"  {len(group.requests):4} runs of {nodes} x {ranks} ranks (one array job)")
    for line in plan.impossible:
        click.secho(f"  {line}", dim=True)
    total = len(plan.requests)
    click.echo(
        f"  {total} runs: {len(planned.complete)} complete, {len(planned.queued)} in the queue, {planned.runs} to submit; "
        f"at most {planned.node_hours:.1f} node-hours"
        + (f" ({planned.cost:.1f} {node.unit})" if node.unit != "node-hours" or node.price != 1 else "")
    )


def _table(found: list[Entry], *, everything: bool) -> None:
    from hpc_utils.launch.status import counts

    for entry in found:
        if entry.state == "COMPLETED" and not everything:
            continue
        click.secho(f"{entry.state:13}", fg=COLOURS.get(entry.state, "red"), nl=False)
        times = [f"about {_duration(entry.left)} left" if entry.left is not None else ""]
        times += [f"limit in {_duration(entry.time_left)}" if entry.time_left is not None else ""]
        parts = [entry.detail, *times, entry.nodes if entry.state == "RUNNING" else ""]
        click.echo(f" {entry.job:10} {entry.run_id}  {', '.join(part for part in parts if part)}")
        if entry.advice:
            click.secho(f"{'':13} {'':10} -> {entry.advice}", dim=True)
    click.echo(", ".join(f"{number} {state}" for state, number in counts(found).items()))


def _wait(study: str | None, gone: tuple[str, ...] = ()) -> list[Entry]:
    """Follow until all has ended: a line whenever a run changes its state."""
    from hpc_utils.launch.status import counts, entries

    before: dict[str, str] = {}
    while True:
        found = entries(study, gone=gone)
        for entry in found:
            if before.get(entry.run_id) != entry.state:
                before[entry.run_id] = entry.state
                click.secho(f"{entry.state:13}", fg=COLOURS.get(entry.state, "red"), nl=False)
                click.echo(f" {entry.job:10} {entry.run_id}  {entry.detail}")
        if all(entry.is_over for entry in found):
            click.echo(", ".join(f"{number} {state}" for state, number in counts(found).items()))
            return found
        time.sleep(2)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
