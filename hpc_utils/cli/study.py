"""`hpc study`, `collect`, `report`, `chapter`, `explain`: studies on this machine and what their records show."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpc_utils import paths, provenance, workspace
from hpc_utils.plural import counted

from .common import (
    SET,
    further_repeats,
    only_option,
    parameters_option,
    planned_repeats,
    print_ceilings,
    print_refused,
    print_table,
    printable,
    redo_options,
    require_precision,
    results_option,
    tell,
    variant_options,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from hpc_utils.analyze.profiles.readers import Reports

KERNELS = 10  # kernels that `hpc explain` lists


@click.group()
def study():
    """Plan and run the studies of jobs/studies on this machine."""


@study.command("plan")
@click.argument("name")
@only_option
@variant_options
def study_plan(name, only, variant):
    """List the runs of a study, and which are complete."""
    from hpc_utils.launch import study as studies
    from hpc_utils.launch.target import Target
    from hpc_utils.records import identity

    target = Target.here(variant)
    plan = studies.plan(name, target, further=planned_repeats(name, target))
    for line in plan.impossible:
        click.secho(line, dim=True)
    chosen = plan.selected(only)
    states = {run.run_id: run.state for run in chosen}
    settings = [identity.settings(identity.measured(run.config, run.layout.ranks)) for run in chosen]
    apart = dict(zip(states, identity.differing_settings(settings), strict=True))
    todo = [run.run_id for run in plan.to_do(only=only)]
    damaged = [run for run in todo if states[run] == "complete"]
    for run, state in (states | dict.fromkeys(damaged, "damaged")).items():
        click.echo(f"{state:10} {run}  {apart[run]}".rstrip())
    counts = f"{counted(len(states), 'run')}, {len(states) - len(todo)} complete, {len(todo)} to do"
    counts += f", {len(damaged)} of them damaged" * bool(damaged) + f": `{plan.command}`" * bool(todo and not only)
    click.echo("\n".join([counts, *plan.changes()]))
    print_ceilings(plan)


@study.command("run")
@click.argument("name")
@redo_options
@click.option("--cold", is_flag=True, help="Start each rank as a new process instead of a fork.")
@click.option("--no-report", is_flag=True, help="Only the runs; `hpc report NAME` writes the report later.")
@variant_options
def study_run(name, cold, no_report, variant, **again):
    """Execute the missing runs of a study; write its report.

    The runs of a repeat take turns: each computes a few steps while the others wait, so that their ratios do not depend on
    how fast the machine is at the moment. Runs that cannot (profiled ones, for example) follow one by one. With a precision,
    further repeats are made of the configurations whose ratios are wider. Then the figures are drawn.
    """
    from hpc_utils import records
    from hpc_utils.launch import forkserver
    from hpc_utils.launch.study_file import read_study_file
    from hpc_utils.launch.study_run import execute
    from hpc_utils.launch.target import Target

    forkserver.start(cold=cold)  # it imports while the study is planned
    target = Target.here(variant)
    study_file = read_study_file(name)
    precision = variant.precision or (None if variant.repeats else study_file.precision)
    require_precision(variant, precision)
    begun = time.monotonic()
    index = execute(name, target, cold=cold, **again)
    made = max(run.repeat for run in records.read_study(index).runs)
    for repeat in range(made + 1, (variant.at_most or study_file.at_most) + 1):
        further = further_repeats(index, precision, repeat)
        if not further:
            break
        if study_file.minutes and time.monotonic() - begun > 60 * study_file.minutes:
            tell(f"no further repeats: the study's `minutes = {study_file.minutes:g}` are over")
            break
        wide = f"whose ratios have half-widths of more than {precision:g}"
        tell(f"repeat {repeat}: {counted(len(further), 'configuration')} {wide}")
        execute(name, target, cold=cold, further=further)
    if not no_report:
        sys.exit(forkserver.run("hpc_utils.cli", "report", index))


@click.command()
@results_option(f"Another set than results/. {SET}")
def collect(folder):
    """Join all complete runs into CSV files.

    These are results/csv/runs.csv and epochs.csv; results/SYSTEM.md is written, too. Runs whose records are
    inconsistent are refused by name; the exit code is then 1.
    """
    from hpc_utils import records
    from hpc_utils.publish.chapters import write_system
    from hpc_utils.records import find

    folder = folder or paths.results()
    record_set = records.collect(folder)
    write_system(record_set, folder)
    refused = record_set.refused.items()
    print_refused({name: f"{why}; {find.remedy(folder / 'runs' / name)}" for name, why in refused})
    for name, state in record_set.unfinished.items():
        warn(f"not complete ({state}): {name}")
    for line in records.by_other_code(record_set, folder):
        warn(line)
    click.echo(
        f"{counted(len(record_set.runs), 'run')}, {counted(len(record_set.epochs), 'epoch')}: {folder / 'csv'}"
    )
    sys.exit(1 if record_set.refused else 0)


@click.command()
@click.argument("name", metavar="[STUDY]", required=False)
@results_option(f"Execute nothing; take the chapters of this set as they are. {SET}")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write this page only; default: report/STUDY/index.html in the set, and report/index.html.",
)
def report(name, folder, output):
    """Write results, chapters and runs of a study as an HTML page.

    The chapters that read the records of STUDY (default: laptop) are executed, and results/report/STUDY/index.html is
    written. results/report/index.html is the same page, or with several studies a list of them. With --results
    nothing is executed: the pages hold the chapters of that set (of STUDY or all studies) as they are. What looks
    wrong or is stale is on top.
    """
    from hpc_utils.launch.status import archive_accounting
    from hpc_utils.publish.chapters import conclude
    from hpc_utils.publish.report import bind

    if folder is None:
        if workspace.environment().get("SLURM_JOB_ID"):
            archive_accounting(name or "laptop")
        conclude(name or "laptop", output)
    else:
        click.echo(bind(folder, name or "", output))


@click.command()
@click.argument("notebook", required=False)
@results_option(f"Default: results/; with --all every set. {SET}")
@parameters_option("A parameter of the chapter's first cell.")
@click.option("--drop", is_flag=True, help="Allow that earlier tables and figures disappear.")
@click.option("--all", "every", is_flag=True, help="Every chapter that was executed, of all sets and studies.")
def chapter(notebook, folder, parameters, drop, every):
    """Execute a chapter that reads results, on a result set.

    Its tables and its figures with their data are written again. If an earlier one would be missing, nothing is changed and
    they are listed (exit code 2). NOTEBOOK: a path, or a name such as 03_scaling.
    """
    from hpc_utils.launch.parameters import find_notebook, of_chapter
    from hpc_utils.publish.chapters import renew, renew_all

    if every == bool(notebook):
        raise click.UsageError("give either a NOTEBOOK or --all")
    if every:
        for output in renew_all([folder] if folder else paths.result_sets(), drop=drop):
            click.echo(output)
        return
    path = find_notebook(Path(notebook))
    study, values = of_chapter(path, parameters)
    if provenance.dirty():
        warn("uncommitted changes: a release refuses what is exported now")
    click.echo(renew(path, folder or paths.results(), drop=drop, **values | {"study": study}))


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: ranks and verdict.")
def explain(files, as_json):
    """Find what limits a run from the profiles of its ranks.

    FILE is a trace of torch.profiler (.json, .json.gz), an export of Nsight Systems (.sqlite; .nsys-rep where nsys is
    installed), a report of Nsight Compute, or a run's folder; its content decides, not its name. Give the files of
    all ranks together. Times are of the profiled window; busy includes memory operations, compute does not.

    Two profiles of the same ranks, BEFORE and AFTER, are compared instead: time a step by part, kernel and phase.
    """
    from hpc_utils.analyze.profiles import readers
    from hpc_utils.analyze.profiles.breakdown import KEYS
    from hpc_utils.analyze.profiles.judge import judge

    # A run may be named as docs/read-a-profile.md does, from any folder.
    sources = [path if path.exists() else paths.runs() / path.name for path in files]
    reports = readers.gather(sources)
    if sides := readers.two_sides(reports, sources):
        from hpc_utils.analyze.profiles.changes import compare

        rows, sentences = compare(*sides)
        if as_json:
            click.echo(
                json.dumps(
                    {"changes": rows.reset_index().to_dict("records"), "sentences": sentences}, allow_nan=False
                )
            )
        else:
            _print_changes(rows, sentences)
        return
    verdict = judge(reports)
    if as_json:
        ranks = [{key: part[key] for key in KEYS} for part in reports.parts]
        click.echo(json.dumps({"ranks": ranks, "verdict": verdict.as_json()}, allow_nan=False))
        return
    if reports.timelines:
        _print_breakdown(reports)
        _print_kernels(reports)
    for line in verdict.lines():
        click.echo(printable(line))


def _print_changes(rows: pd.DataFrame, sentences: Sequence[str]) -> None:
    for kind in ("part", "kernel", "phase"):
        chosen = rows.query("of == @kind").head(KERNELS).itertuples()
        print_table(
            ["before", "after", "change", f"ms, by {kind}"],
            [[*(f"{ms:,.3f}" for ms in row[1:]), row.Index[1][:60]] for row in chosen],
            text_columns=1,
        )
        click.echo()
    for sentence in sentences:
        click.echo(printable(sentence))


def _print_breakdown(reports: Reports) -> None:
    names = ("busy", "compute", "communication", "exposed_communication", "memory", "loader_wait")
    header = ["rank", "GPU", "span", *(name.removesuffix("_communication").replace("_", " ") for name in names)]
    rows = []
    for part in reports.parts:
        span = part["span_ns"]
        row = [part["rank"], part["device"], span and f"{span / 1e6:,.1f}"]
        for name in names:
            duration = part[f"{name}_ns"]
            row.append("not known" if duration is None else f"{duration / 1e6:,.1f} {duration / (span or 1):4.0%}")
        rows.append(["-" if cell is None else str(cell) for cell in row])
    print_table(header, rows)
    has_operations = any(timeline.ops is not None for timeline in reports.timelines)
    devices = sorted({timeline.device_name for timeline in reports.timelines if timeline.device_name})
    caption = "ms and share of the span" if has_operations else "no work of a GPU was seen"
    click.echo(printable("; ".join([caption, *devices])))


def _print_kernels(reports: Reports) -> None:
    from hpc_utils.analyze.profiles import kernels

    longest = kernels.kernel_table(reports.timelines)
    if longest.empty:
        return
    kinds = [f"{row.kind} {row.share:.0%}" for row in kernels.kernel_table(reports.timelines, "kind").itertuples()]
    click.echo(f"\ntime of all kernels by class: {', '.join(kinds)}\n")
    rows = [
        [
            f"{row.share:.1%}", f"{row.total_ns / 1e6:,.2f}", str(row.count), f"{row.median_ns / 1e3:,.1f}", row.kind,
            row.name[:60],
        ]
        for row in longest.head(KERNELS).itertuples()
    ]  # fmt: skip
    print_table(["share", "ms", "calls", "median us", "class", "kernel"], rows, text_columns=2)
    click.echo()
