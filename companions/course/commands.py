"""`hpc export --course`, which the core's command line finds here."""

from __future__ import annotations

import inspect
from pathlib import Path

import click

from hpc_utils import paths

HELP = """

For a course (docs/course.md), the folder has results.csv, run.sh, submit.sbatch, reproduce.md, SYSTEM.md, Slurm's accounting and
the figures of the study.

\b
hpc export --course laptop --results epyc-2core
"""


def register(main: click.Group) -> None:
    """Add the option `--course` to `hpc export`."""
    export = main.commands["export"]
    export_figure = export.callback

    def export_figure_or_folder(course: bool, **options):
        if course:
            export_folder(options["name"], options["folder"] or paths.results(), options["output"])
        else:
            export_figure(**options)

    export.callback = export_figure_or_folder
    export.help = inspect.cleandoc(export.help) + HELP
    description = (
        "Write the folder that a course asks for about the study FIGURE (default: the only one) into results/course."
    )
    export.params.append(click.Option(["--course"], is_flag=True, help=description))


def export_folder(study: str | None, results: Path, output: Path | None) -> None:
    """Write the folder about a study of the set `results`; warn of what it lacks."""
    from . import hand_in

    studies = sorted(path.stem for path in (results / "studies").glob("*.json"))
    if not study and len(studies) != 1:
        raise click.UsageError(f"--course: give a STUDY: {', '.join(studies) or f'{results} has none'}")
    study = study or studies[0]
    output = output or paths.results() / "course" / study
    for note in hand_in.write_folder(study, results, output):
        click.secho(note, fg="yellow", err=True)
    click.echo(output)
