"""`hpc export --course` and `hpc release --course`, which the core's command line finds here."""

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
    """Add the option `--course` to `hpc export` and `hpc release`."""
    export = main.commands["export"]
    export.help = inspect.cleandoc(export.help) + HELP
    description = (
        "Write the folder that a course asks for about the study FIGURE (default: the only one) into results/course."
    )
    flag = {"flag_value": write_folder, "type": click.UNPROCESSED, "default": None}
    export.params.append(click.Option(["--course", "write_instead"], **flag, help=description))
    description = "Tag the commit of this folder's repository as v1.0 and pack it, with what a course asks for."
    flag["flag_value"] = release_repository
    main.commands["release"].params.append(click.Option(["--course", "release_instead"], **flag, help=description))


def release_repository(check: bool, output: Path | None) -> None:
    """Pack and tag the repository of the working folder, or only list what it lacks."""
    from hpc_utils.publish.release import checklist

    from . import release

    root = Path(checklist.git(Path.cwd(), "rev-parse", "--show-toplevel").decode().strip())
    if check:
        lacking = list(release.faults(root))
        click.echo("\n".join(lacking) or "nothing is missing")
        return
    click.echo(release.release(root, output or paths.results() / "release"))
    click.echo(f"tagged {release.TAG}: `git push --follow-tags` hands it in", err=True)


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
