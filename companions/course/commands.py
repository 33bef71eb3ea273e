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
    export.help = inspect.cleandoc(export.help) + HELP
    description = (
        "Write the folder that a course asks for about the study FIGURE (default: the only one) into results/course."
    )
    flag = {"flag_value": write_folder, "type": click.UNPROCESSED, "default": None}
    export.params.append(click.Option(["--course", "write_instead"], **flag, help=description))


def write_folder(study: str | None, results: Path | None, output: Path | None) -> None:
    """Write the folder about a study of the set `results`; warn of what it lacks."""
    from . import hand_in

    results = results or paths.results()
    studies = sorted(path.stem for path in (results / "studies").glob("*.json"))
    if not study and len(studies) != 1:
        raise click.UsageError(f"--course: give a STUDY: {', '.join(studies) or f'{results} has none'}")
    study = study or studies[0]
    output = output or paths.results() / "course" / study
    for note in hand_in.write_folder(study, results, output):
        click.secho(note, fg="yellow", err=True)
    click.echo(output)
