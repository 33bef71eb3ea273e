"""`hpc import`, which the core's command line finds here."""

from __future__ import annotations

import shlex
import sys

import click

from hpc_utils.cli.common import FILE, print_refused, print_table
from hpc_utils.plural import counted


def register(main: click.Group) -> None:
    """Add `hpc import`."""
    main.add_command(import_)


@click.command("import")
@click.argument("files", metavar="FILE.csv...", nargs=-1, required=True, type=FILE)
@click.option(
    "--map", "mapping", metavar="MAPPING.toml", type=FILE, required=True, help="The meaning of the columns."
)
@click.option(
    "--as",
    "name",
    default="",
    metavar="NAME",
    show_default="name of the first FILE",
    help="Folder under results/foreign.",
)
@click.option("--dry-run", is_flag=True, help="Check and print only; keep nothing.")
def import_(files, mapping, name, dry_run):
    """Read results measured elsewhere, and check them as our own.

    Each row is a run or, if the mapping names a column for `epoch`, an epoch of the run that the file is about. They are
    kept under results/foreign/NAME, a result set with records that chapters and documents read and name as imported. A
    throughput that contradicts the time and samples of its row is corrected if the reason is known (a global count summed
    over ranks); otherwise the row is refused, and the exit code is 1; of epochs, nothing is kept then.
    """
    from hpc_utils.publish.formatting import first_names

    from . import runs as imported
    from . import tables

    name = name or files[0].stem.lower()
    meaning = tables.read_meaning(mapping, name)
    is_by_epoch = "epoch" in meaning.columns
    refused = {}
    if not is_by_epoch:
        if len(files) > 1:
            raise click.UsageError(
                "several files are a file for each run: name their column of epochs in the mapping"
            )
        refused = _check_table(files[0], mapping, name)
    runs, unfit = imported.read_runs(files, mapping, name)
    kernels = _kernel_tables(runs)
    if is_by_epoch:
        refused = unfit
        rows = [
            [run.run_id, str(len(run.epochs)), f"{run.throughput:,.4g}", ", ".join(sorted(run.verdicts))]
            for run in runs
        ]
        print_table(["run", "epochs", "samples/s", "reported throughput"], rows)
    elif unfit:
        place, why = next(iter(unfit.items()))
        click.secho(f"{counted(len(unfit), 'row')} without a record, such as {place}: {why}", fg="yellow", err=True)
    places = {why: [str(place) for place, fault in refused.items() if fault == why] for why in refused.values()}
    line = "" if is_by_epoch else "line "
    print_refused({f"{line}{first_names(names)}": why for why, names in places.items()})
    if is_by_epoch and refused:
        click.echo("nothing is kept: runs without these epochs would not compare", err=True)
        sys.exit(1)
    if not dry_run:
        kept = tables.keep({path.name if is_by_epoch else "source.csv": path for path in files}, mapping, name)
        click.echo(f"kept: {kept}")
    if runs and not dry_run:
        command = shlex.join(["hpc", "import", *map(str, files), "--map", str(mapping), "--as", name])
        imported.write_set(runs, meaning, name, command, kernels)
        click.echo(f"figures: `hpc chapter {imported.CHAPTER} --results {name} -p study={name}`")
    sys.exit(1 if refused else 0)


def _kernel_tables(runs):
    """{file that a run names: its kernels as CSV}."""
    from hpc_utils.analyze.profiles import readers
    from hpc_utils.analyze.profiles.kernels import kernel_table

    from .kernels import read_kernels

    contents = {}
    for path in {run.kernels for run in runs if run.kernels}:
        table = kernel_table(readers.read_timelines(path)) if readers.kind(path) else read_kernels(path)
        contents[path] = table.to_csv(index=False, lineterminator="\n")
    return contents


def _check_table(file, mapping, name):
    """Print the efficiency and the verdicts of a table of runs; returns {line: why it is refused}."""
    from .efficiency import efficiency
    from .tables import Verdict, read_table

    runs, refused = read_table(file, mapping, name)
    points = efficiency(runs).dropna(axis="columns", how="all")
    if points.empty:
        click.echo("no efficiency: no run on one rank of the same configuration, software and date")
    else:
        click.echo(points.to_string(index=False, na_rep="-", float_format="{:.4g}".format))
    verdicts = runs.verdict.value_counts()
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    click.echo(f"{counted(len(runs), 'run')}: {counts}")
    consistent = runs[runs.verdict == Verdict.CONSISTENT]
    difference = (consistent.reported_throughput / consistent.throughput - 1).abs().max()
    if difference > 0:
        click.echo(
            f"throughput and samples / seconds differ by up to {difference:.2g} (`tolerance` in {mapping.name})"
        )
    return refused
