"""`hpc chapter`, `paper`: what others read."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hpc_utils import paths, provenance

from .common import SET, parameters_option, results_option, warn


@click.command()
@click.argument("notebook", required=False)
@results_option(f"Default: results/; with --all every set. {SET}")
@parameters_option("A parameter of the chapter's first cell.")
@click.option("--drop", is_flag=True, help="Allow that earlier tables and figures disappear.")
@click.option("--all", "every", is_flag=True, help="Every chapter that was executed, of all sets and studies.")
def chapter(notebook, folder, parameters, drop, every):
    """Execute a chapter that reads results, on a result set.

    Its tables and its figures with their data are written again. If an earlier one would be missing, nothing is changed and
    they are listed (exit code 2). NOTEBOOK: a path, or a name such as 03_scaling.
    """
    from hpc_utils.launch.parameters import find_notebook, of_chapter
    from hpc_utils.publish.chapters import renew, renew_all

    if every == bool(notebook):
        raise click.UsageError("give either a NOTEBOOK or --all")
    if every:
        for output in renew_all([folder] if folder else paths.result_sets(), drop=drop):
            click.echo(output)
        return
    path = find_notebook(Path(notebook))
    study, values = of_chapter(path, parameters)
    if provenance.dirty():
        warn("uncommitted changes: a release refuses what is exported now")
    click.echo(renew(path, folder or paths.results(), drop=drop, **values | {"study": study}))


class _Paper(click.Group):
    """`hpc paper [DOCUMENT]...` is `hpc paper build [DOCUMENT]...`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        is_command = args[:1] and args[0] in (*self.commands, *context.help_option_names)
        return super().parse_args(context, args if is_command else ["build", *args])


@click.group(cls=_Paper)
def paper():
    """Build the paper, the proposal and the slides.

    \b
    hpc paper                        all of paper/paper.toml, into paper/build/
    hpc paper paper slides           some of them (short for hpc paper build paper slides)
    hpc paper new NAME               begin a document: a page about a study, a paper, a proposal, a pitch
    """


@paper.command("build")
@click.argument("documents", metavar="[DOCUMENT]...", nargs=-1)
@click.option("--check", is_flag=True, help="List the faults; write nothing.")
@click.option(
    "--values", "pattern", metavar="PATTERN", is_flag=False, flag_value="*",
    help="List the tables and figures that documents may cite, all or those whose names match (`scaling-*`).",
)  # fmt: skip
def paper_build(documents, check, pattern):
    """Build documents into paper/build/.

    Each DOCUMENT is one of paper/paper.toml, by default all. All faults are listed with their places: a cell that does not
    exist, a table older than its records, a number typed by hand. A document with a fault is not built.
    """
    from hpc_utils.publish.documents import sets

    if pattern is None:
        with paper_packages():
            from hpc_utils.publish.documents import build
    shared = sets.read_context(paths.root(), log=click.echo if pattern is None else lambda line: None)
    if pattern is not None:
        _print_citable(shared.sets(shared.project.sets), pattern)
        return
    written = build.build(shared, documents, check=check)
    click.secho("no faults" if check else f"files written: {len(written)}", fg="green")


@contextlib.contextmanager
def paper_packages() -> Iterator[None]:
    """A missing package of the extra `paper` is one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        fault = click.ClickException(
            f"{error.name} is not installed: run `make paper` once, or `pip install -e '.[paper]'`"
        )
        fault.exit_code = 2
        raise fault from None


def _print_citable(sets: Any, pattern: str) -> None:
    """The tables and figures of each set whose names match, with captions, columns and units."""
    printed_pages: set[tuple[str, str]] = set()
    for alias, cited_set in sets.by_alias.items():
        for kind, items in (("", cited_set.exported.tables), ("figure:", cited_set.exported.figures)):
            for item in items.values():
                if not fnmatch.fnmatch(f"{alias}:{item.name}", f"*{pattern}*"):
                    continue
                printed_pages.add((alias, item.page))
                measure = f"  (without a column: {item.measure})" if item.measure else ""
                click.echo(f"{kind}{alias}:{item.name}{measure}\n    {item.caption}")
                if units := item.quantities.items():
                    click.echo(f"    {', '.join(f'{name} ({unit})' for name, unit in units)}")
    for alias, page in sorted(printed_pages):
        if fault := sets.by_alias[alias].fault(page):
            warn(f"{alias}: {fault}")
    if not printed_pages:
        raise click.UsageError(f"no table or figure matches {pattern!r}: `hpc paper --values` lists all")
