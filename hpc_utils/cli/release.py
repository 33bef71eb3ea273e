"""`hpc release`: one commit with its results and texts, packed for an archive."""

from __future__ import annotations

from pathlib import Path

import click

COLOURS = {"holds": "green", "fails": "red", "unknown": "yellow"}
SHOWN = 6  # lines of one item


@click.command()
@click.option("--check", is_flag=True, help="Only print the checklist.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Default: results/release.")
def release(check: bool, output: Path | None) -> None:
    """Pack code, results, executed chapters, reports, PDFs and checksums of this commit as an RO-Crate, ready for Zenodo.

    \b
    hpc release --check        each item of the checklist: holds, fails or unknown, and why
    hpc release                writes <name>-<version>/ and <name>-<version>.zip

    The first items of the list must hold for any release, all of them from version 1.0 on (RELEASING.md). The PDFs are
    those of `make paper`; the same commit and PDFs give the same bytes. Exit code 2: refused.
    """
    from hpc_utils import paths
    from hpc_utils.publish.release import release as make

    try:
        if check:
            _print_checklist(paths.root())
            return
        path = make(paths.root(), output or paths.results() / "release")
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed: `pip install -e '.[paper]'`") from None
    click.echo(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
    click.echo("Upload it to Zenodo; .zenodo.json inside holds what its form asks for.", err=True)


def _print_checklist(root: Path) -> None:
    from hpc_utils.publish.release import citation, ready, tree

    found = ready.items(root)
    version = citation.project(tree.head(root).files)["version"]
    for always, title in ((True, "For any release"), (False, "For version 1.0")):
        click.secho(title, bold=True)
        for item in (one for one in found if one.always is always):
            lines = item.why.splitlines()
            click.secho(f"  {item.state:8}", fg=COLOURS[item.state], nl=False)
            click.echo(item.name + (f": {lines[0]}" if lines else ""))
            for line in lines[1:SHOWN]:
                click.echo(f"          {line}")
            if len(lines) > SHOWN:
                click.echo(f"          and {len(lines) - SHOWN} more")
    for target in dict.fromkeys((version, "1.0.0")):
        faults = ready.refused(found, target)
        click.echo(f"{target} {'is refused: ' + str(len(faults)) + ' to mend' if faults else 'can be released'}")
    if ready.refused(found, version):
        click.get_current_context().exit(1)
