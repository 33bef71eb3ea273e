"""`hpc paper`: the documents, from Markdown whose numbers have names to PDF and TeX."""

from __future__ import annotations

import fnmatch

import click


@click.command()
@click.argument("documents", metavar="[DOCUMENT]...", nargs=-1)
@click.option("--check", is_flag=True, help="Only say what is wrong; write nothing.")
@click.option(
    "--values", "pattern", metavar="PATTERN", is_flag=False, flag_value="*",
    help="List the values, figures and tables that texts may refer to, all or those whose names match (`strong.*`).",
)  # fmt: skip
def paper(documents: tuple[str, ...], check: bool, pattern: str | None) -> None:
    """Build each DOCUMENT of paper/paper.toml, by default all, into paper/build/.

    Everything wrong is said at once, with its place: a name that no chapter hands on, a value older than its records, a
    number typed by hand. A document with a fault leaves no PDF; the others are built.
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
    from hpc_utils.publish import amounts

    from .sets import called

    pattern = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    shown = 0
    found = workshop.sets(workshop.project.sets, lambda line: None)
    for alias, one in found.by_alias.items():
        for said in one.faults:
            click.secho(f"{alias}: {said}", fg="yellow", err=True)
        listed = [(name, amounts.text(value, "interval"), value.says) for name, value in one.exported.values.items()]
        listed += [(f"figure:{name}", "", drawn.caption) for name, drawn in one.exported.figures.items()]
        listed += [(f"table:{name}", "", drawn.caption) for name, drawn in one.exported.tables.items()]
        heading = called(one.folder, {alias: one.folder})
        for name, said, says in listed:
            if fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(f"{alias}:{name}", pattern):
                if heading:
                    click.secho(heading, bold=True)
                    heading = ""
                shown += 1
                click.echo(f"{alias}:{name}" + (f" = {said}" if said else ""))
                click.echo(f"    {says}")
    if not shown:
        click.echo(f"nothing matches {pattern}: `hpc paper --values` lists all", err=True)
