"""`hpc paper` and `hpc release`, which the core's command line finds here."""

from __future__ import annotations

import contextlib
import fnmatch
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hpc_utils import paths
from hpc_utils.cli.common import SET, results_option, tell, warn
from hpc_utils.plural import counted


def register(main: click.Group) -> None:
    """Add both."""
    main.add_command(paper)
    main.add_command(release)


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
    from . import sets

    if pattern is None:
        with paper_packages():
            from . import build
    shared = sets.read_context(paths.root(), log=click.echo if pattern is None else lambda line: None)
    if pattern is not None:
        _print_citable(shared.sets(shared.project.sets), pattern)
        return
    written = build.build(shared, documents, check=check)
    click.secho("no faults" if check else f"files written: {len(written)}", fg="green")


@paper.command("new")
@click.argument("name")
@click.option(
    "--template", default="page", type=click.Choice(["page", "paper", "proposal", "proposal-500", "pitch"]),
    show_default=True,
)  # fmt: skip
@click.option("--study", default="", help="Default: of a page NAME; of the others the only one, or the whole set.")
@results_option(f"Default: results/. {SET}")
def paper_new(name, template, study, folder):
    """Write a document about a study, to be edited.

    paper/NAME.md cites cells of SET. The document is added to paper/paper.toml, and results/ as the set `mine`. `hpc paper NAME`
    builds it. What SET lacks is printed as "not measured".

    \b
    page           one page: a figure, the targets and the points of a study
    paper          4 to 6 pages, with guidance for each section
    proposal       6 to 8 pages, for EuroHPC Development Access; node-hours of chapter 07_proposal
    proposal-500   the same for 500 node-hours on 1 to 32 GPUs in four months
    pitch          five slides
    """
    from . import draft

    written = draft.write_draft(paths.root(), folder or paths.results(), name, study, template)
    click.echo(f"{written}: edit it; `hpc paper {name}` builds it")


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
        from .release import archive

        if check:
            _print_checklist(paths.root())
            return
        path = archive.release(paths.root(), output)
    click.echo(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
    tell("Upload it to Zenodo; CITATION.cff in it holds the entries of the form.")


def _release_repository(check: bool, output: Path) -> None:
    """Pack and tag the repository of the working folder, or only list what it lacks."""
    from .release import checklist
    from .release import course as repository

    root = Path(checklist.git(Path.cwd(), "rev-parse", "--show-toplevel").decode().strip())
    if check:
        faults = list(repository.faults(root))
        click.echo("\n".join(faults) or "nothing is missing")
        sys.exit(1 if faults else 0)
    click.echo(repository.release(root, output))
    click.echo(f"tagged {repository.TAG}: `git push --follow-tags` hands it in", err=True)


def _print_checklist(root: Path) -> None:
    from .release import checklist, crate

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
