"""`hpc release`, which the core's command line finds here."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hpc_utils import paths
from hpc_utils.cli.common import tell
from hpc_utils.cli.publish import paper_packages
from hpc_utils.plural import counted


def register(main: click.Group) -> None:
    """Add `hpc release`."""
    main.add_command(release)


@click.command()
@click.option("--check", is_flag=True, help="Print the checklist; write nothing.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Default: results/release.")
@click.option(
    "--course",
    is_flag=True,
    help="Tag the commit of this folder's repository as v1.0 and pack it, with what a course asks for.",
)
def release(check, output, course):
    """Pack this commit, its results and documents as an RO-Crate.

    \b
    hpc release --check        each item of the checklist: holds or fails, and why
    hpc release                writes <name>-<version>.zip

    The first items of the list must hold for any release, all of them from version 1.0 on (RELEASING.md). The PDFs are
    built from the commit's sources; the same commit gives the same bytes. Exit code 2: refused.
    """
    output = output or paths.results() / "release"
    if course:
        return _release_repository(check, output)
    with paper_packages():
        from . import archive

        if check:
            _print_checklist(paths.root())
            return
        path = archive.release(paths.root(), output)
    click.echo(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
    tell("Upload it to Zenodo; CITATION.cff in it holds the entries of the form.")


def _release_repository(check: bool, output: Path) -> None:
    """Pack and tag the repository of the working folder, or only list what it lacks."""
    from . import checklist
    from . import course as repository

    root = Path(checklist.git(Path.cwd(), "rev-parse", "--show-toplevel").decode().strip())
    if check:
        faults = list(repository.faults(root))
        click.echo("\n".join(faults) or "nothing is missing")
        sys.exit(1 if faults else 0)
    click.echo(repository.release(root, output))
    click.echo(f"tagged {repository.TAG}: `git push --follow-tags` hands it in", err=True)


def _print_checklist(root: Path) -> None:
    from . import checklist, crate

    requirements = checklist.items(root)
    version = crate.project(root)["version"]
    for item in sorted(requirements, key=lambda requirement: not requirement.always):
        state, colour = ("fails", "red") if item.faults else ("holds", "green")
        click.secho(f"{state}  ", fg=colour, nl=False)
        click.echo(item.name + ("" if item.always else " (for version 1.0)"))
        for fault in item.faults:
            click.echo(f"       {fault}")
    for target in dict.fromkeys((version, "1.0.0")):
        faults = len(checklist.refused(requirements, target))
        click.echo(f"{target} {'is refused: ' + counted(faults, 'fault') if faults else 'can be released'}")
    if checklist.refused(requirements, version):
        sys.exit(1)
