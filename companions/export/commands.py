"""`hpc export`, which the core's command line finds here."""

from __future__ import annotations

import re
from pathlib import Path

import click

from hpc_utils import paths
from hpc_utils.cli.common import SET, aliases, results_option, warn


def register(main: click.Group) -> None:
    """Add `hpc export`."""
    main.add_command(export)


@click.command()
@click.argument("name", metavar="[FIGURE]", required=False)
@results_option(f"Default: all sets; with --course results/. {SET}")
@click.option("--format", "formats", default="pdf,svg,png", help="Of the figure, separated by commas.")
@click.option(
    "--course",
    is_flag=True,
    help="Write the folder that a course asks for about the study FIGURE (default: the only one).",
)
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False),
    help="Default: results/export; with --course results/course.",
)  # fmt: skip
def export(name, folder, formats, course, output):
    """Write one figure with data and source, as PDF, SVG and PNG.

    Without FIGURE, list the figures and their captions.

    \b
    hpc export
    hpc export laptop:laptop-efficiency
    hpc export scaling-efficiency --results rehearsal --format svg

    For a course (docs/course.md), the folder has results.csv, run.sh, submit.sbatch, reproduce.md, SYSTEM.md, Slurm's
    accounting and the figures of the study.

    \b
    hpc export --course laptop --results epyc-2core
    """
    if course:
        _write_course_folder(name, folder or paths.results(), output)
        return
    from hpc_utils import records
    from hpc_utils.publish import cells, exports, staleness

    from . import figures

    folders_by_alias = aliases()
    folders = [folder] if folder else [*paths.result_sets(), *folders_by_alias.values()]
    sets = {path.name: exports.read_exports(path) for path in folders}
    if not name:
        names = {path: alias for alias, path in folders_by_alias.items()}
        for set_name, exported in sets.items():
            for figure in sorted(exported.figures.values(), key=lambda item: item.name):
                click.echo(f"{names.get(exported.folder, set_name)}:{figure.name}  {figure.caption}")
        return
    alias, colon, figure_name = name.rpartition(":")
    alias = folders_by_alias[alias].name if alias in folders_by_alias else alias
    set_name, figure = cells.find_item("figures", f"{alias}{colon}{figure_name}", sets)
    output = output or paths.results() / "export"
    for path in figures.write_figure(sets[set_name], figure, output, re.split(r"[,\s]+", formats.strip())):
        click.echo(path)
    for fault in staleness.page_faults(sets[set_name], figure.page, records.load(sets[set_name].folder)):
        warn(f"warning: {fault}")


def _write_course_folder(study: str | None, results: Path, output: Path | None) -> None:
    """Write the folder about a study of the set `results`; warn of what it lacks."""
    from . import hand_in

    studies = sorted(path.stem for path in (results / "studies").glob("*.json"))
    if not study and len(studies) != 1:
        raise click.UsageError(f"--course: give a STUDY: {', '.join(studies) or f'{results} has none'}")
    study = study or studies[0]
    output = output or paths.results() / "course" / study
    for note in hand_in.write_folder(study, results, output):
        warn(note)
    click.echo(output)
