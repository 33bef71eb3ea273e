"""`hpc export`: one figure for use elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from .sets import SETS, aliases, called, result_set


@click.command()
@click.argument("figure", required=False)
@click.option("--list", "as_list", is_flag=True, help="Which figures there are, and what each shows.")
@click.option("--results", metavar="SET", help=f"{SETS} Default: yours, and all that are committed.")
@click.option("--format", "formats", default="pdf,svg,png", show_default=True, help="One or more, with commas.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Default: results/export.")
def export(figure: str | None, as_list: bool, results: str | None, formats: str, output: Path | None) -> None:
    """Write FIGURE as PDF, SVG and PNG, with the data that it shows (CSV), and its sentence and source (JSON).

    \b
    hpc export --list
    hpc export laptop:laptop-efficiency
    hpc export scaling-efficiency --results rehearsal --format svg
    """
    from hpc_utils import paths
    from hpc_utils.publish import figure_export, staleness

    if bool(figure) == as_list:
        raise click.UsageError("name a figure, or ask for the --list")
    found = figure_export.figures(_folders(results))
    if as_list:
        named, last = aliases(), None
        for one in found:
            if one.folder != last:
                click.secho(called(one.folder, named), bold=True)
                last = one.folder
            click.echo(f"{called(one.folder, named).split(' ')[0]}:{one.drawn.name}  {one.drawn.caption}")
        if not found:
            click.echo("none: no chapter has exported a figure (`hpc chapter` executes one)", err=True)
        return
    kinds = [kind.strip() for kind in formats.split(",") if kind.strip()]
    chosen = figure_export.find(_own(figure), found)
    for path in figure_export.write(chosen, output or paths.results() / "export", kinds):
        click.echo(path)
    for fault in staleness.faults_of(chosen.folder, chosen.drawn.page):
        click.secho(f"beware: {fault}", fg="yellow", err=True)


def _folders(results: str | None) -> list[Path]:
    from hpc_utils import paths

    if results is not None:
        return [result_set(results)]
    kept = sorted(path for path in paths.reference().glob("*") if path.is_dir())
    return [*({paths.results()} - {*kept}), *kept]


def _own(figure: str) -> str:
    """`epyc-2core:NAME` of `laptop:NAME`."""
    alias, colon, name = figure.rpartition(":")
    folder = aliases().get(alias)
    return f"{folder.name}{colon}{name}" if folder else figure
