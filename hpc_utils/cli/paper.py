"""`hpc paper`: the documents, from Markdown that cites cells of exported tables to PDF and TeX."""

from __future__ import annotations

import fnmatch

import click


@click.command()
@click.argument("documents", metavar="[DOCUMENT]...", nargs=-1)
@click.option("--check", is_flag=True, help="Only say what is wrong; write nothing.")
@click.option(
    "--values", "pattern", metavar="PATTERN", is_flag=False, flag_value="*",
    help="List the tables and figures that texts may cite, all or those whose names match (`scaling-*`).",
)  # fmt: skip
def paper(documents: tuple[str, ...], check: bool, pattern: str | None) -> None:
    """Build each DOCUMENT of paper/paper.toml, by default all, into paper/build/.

    All faults are listed at once, with their places: a cell that does not exist, a table older than its records, a number typed by
    hand. A document with a fault leaves no PDF; the others are built.
    """
    from hpc_utils import paths
    from hpc_utils.publish.documents import build
    from hpc_utils.publish.documents import workshop as workshops

    workshop = workshops.open_(paths.root())
    if pattern is not None:
        _list(workshop, pattern)
        return
    written = build.build(workshop, documents, check=check, say=click.echo)
    click.secho("nothing wrong" if check else f"{len(written)} files written", fg="green")


def _list(workshop, pattern: str) -> None:
    from .sets import called

    pattern = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    shown = 0
    for alias, one in workshop.sets(workshop.project.sets, lambda line: None).by_alias.items():
        for fault in one.faults:
            click.secho(f"{alias}: {fault}", fg="yellow", err=True)
        heading = called(one.folder, {alias: one.folder})
        tables, figures = ([*own.values()] for own in (one.exported.tables, one.exported.figures))
        for prefix, item in [*(("", item) for item in tables), *(("figure:", item) for item in figures)]:
            if not fnmatch.fnmatch(f"{alias}:{item.name}", f"*{pattern}"):
                continue
            if heading:
                click.secho(heading, bold=True)
                heading = ""
            shown += 1
            click.echo(
                f"{prefix}{alias}:{item.name}" + (f"  (without a column: {item.measure})" if item.measure else "")
            )
            click.echo(f"    {item.caption}")
            columns = {column: unit for column, unit in item.units.items() if not column.endswith(("_low", "_high"))}
            if columns:
                click.echo("    " + ", ".join(f"{column} ({unit})" for column, unit in columns.items()))
    if not shown:
        click.echo(f"nothing matches {pattern}: `hpc paper --values` lists all", err=True)
