"""`hpc export`: one figure for use elsewhere."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("figure", required=False)
@click.option("--list", "as_list", is_flag=True, help="Which figures there are, and what each shows.")
@click.option(
    "--results", metavar="SET", help="A folder, or a name under results/reference; default: yours, and all of those."
)
@click.option("--format", "formats", default="pdf,svg,png", show_default=True, help="One or more, with commas.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Default: results/export.")
def export(figure: str | None, as_list: bool, results: str | None, formats: str, output: Path | None) -> None:
    """Write FIGURE as PDF, SVG and PNG, with the data that it shows (CSV), and its sentence and source (JSON).

    \b
    hpc export --list
    hpc export scaling-efficiency --results rehearsal --format svg
    """
    from hpc_utils import paths
    from hpc_utils.publish import export as exports

    if bool(figure) == as_list:
        raise click.UsageError("name a figure, or ask for the --list")
    found = exports.figures(_folders(results))
    if as_list:
        for one in found:
            click.echo(f"{one.folder.name}:{one.drawn.name}  {one.drawn.says}")
        if not found:
            click.echo("none: no chapter has handed on a figure (`hpc chapter` executes one)", err=True)
        return
    kinds = [kind.strip() for kind in formats.split(",") if kind.strip()]
    for path in exports.write(exports.find(figure, found), output or paths.results() / "export", kinds):
        click.echo(path)


def _folders(results: str | None) -> list[Path]:
    from hpc_utils import paths

    if results is not None:
        return [paths.result_set(results)]
    kept = sorted(path for path in paths.reference().glob("*") if path.is_dir())
    return [*({paths.results()} - {*kept}), *kept]
