"""`hpc release`: one commit with its results and documents, packed for an archive."""

from __future__ import annotations

from pathlib import Path

import click

SHOWN = 6  # faults of one item


@click.command()
@click.option("--check", is_flag=True, help="Only print the checklist.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Default: results/release.")
def release(check: bool, output: Path | None) -> None:
    """Pack code, results, executed chapters, reports, PDFs and checksums of this commit as an RO-Crate, ready for Zenodo.

    \b
    hpc release --check        each item of the checklist: holds or fails, and why
    hpc release                writes <name>-<version>.zip

    The first items of the list must hold for any release, all of them from version 1.0 on (RELEASING.md). The PDFs are
    those of `make paper`; the same commit and PDFs give the same bytes. Exit code 2: refused.
    """
    from hpc_utils import paths

    try:
        from hpc_utils.publish.release import archive

        if check:
            _print_checklist(paths.root())
            return
        path = archive.release(paths.root(), output or paths.results() / "release")
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed: `pip install -e '.[paper]'`") from None
    click.echo(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
    click.echo("Upload it to Zenodo; .zenodo.json inside holds what its form asks for.", err=True)


def _print_checklist(root: Path) -> None:
    from hpc_utils.publish.release import checklist, crate

    found = checklist.items(root)
    version = crate.project(root)["version"]
    for always, title in ((True, "For any release"), (False, "For version 1.0")):
        click.secho(title, bold=True)
        for item in (one for one in found if one.always is always):
            click.secho("  fails  " if item.faults else "  holds  ", fg="red" if item.faults else "green", nl=False)
            click.echo(": ".join([item.name, *item.faults[:1]]))
            for fault in item.faults[1:SHOWN]:
                click.echo(f"         {fault}")
            if len(item.faults) > SHOWN:
                click.echo(f"         and {len(item.faults) - SHOWN} more")
    for target in dict.fromkeys((version, "1.0.0")):
        faults = checklist.refused(found, target)
        click.echo(f"{target} {f'is refused: {len(faults)} faults' if faults else 'can be released'}")
    if checklist.refused(found, version):
        click.get_current_context().exit(1)
