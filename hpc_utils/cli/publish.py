"""`hpc chapter`, `paper`, `export`, `verify`: what others read, repeat or take along."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from hpc_utils import paths, provenance
from hpc_utils.plural import counted

from .common import POSITIVE, SET, Finite, aliases, parameters_option, result_set, results_option, tell, warn


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
    from hpc_utils.publish.documents import draft

    written = draft.write_draft(paths.root(), folder or paths.results(), name, study, template)
    click.echo(f"{written}: edit it; `hpc paper {name}` builds it")


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


@click.command()
@click.argument("name", metavar="[FIGURE]", required=False)
@click.option("--list", "as_list", is_flag=True, help="List the figures and their captions.")
@results_option(f"Default: results/ and all committed sets. {SET}")
@click.option("--format", "formats", default="pdf,svg,png", help="Of the figure, separated by commas.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Default: results/export.",
)
def export(name, as_list, folder, formats, output, write_instead=None):
    """Write one figure with data and source, as PDF, SVG and PNG.

    \b
    hpc export --list
    hpc export laptop:laptop-efficiency
    hpc export scaling-efficiency --results rehearsal --format svg
    """
    from hpc_utils.publish import cells, exports, figure_export, staleness

    if write_instead:  # an option of a companion
        return write_instead(name, folder, output)
    if bool(name) == as_list:
        raise click.UsageError("give either a FIGURE or --list")
    committed = sorted(path for path in paths.reference().glob("*") if path.is_dir())
    sets = {path.name: exports.read_exports(path) for path in ([folder] if folder else [paths.results(), *committed])}
    folders_by_alias = aliases()
    if as_list:
        names = {path: alias for alias, path in folders_by_alias.items()}
        for set_name, exported in sets.items():
            for figure in sorted(exported.figures.values(), key=lambda item: item.name):
                click.echo(f"{names.get(exported.folder, set_name)}:{figure.name}  {figure.caption}")
        return
    alias, colon, figure_name = name.rpartition(":")
    alias = folders_by_alias[alias].name if alias in folders_by_alias else alias
    set_name, figure = cells.find_item("figures", f"{alias}{colon}{figure_name}", sets)
    kinds = [kind.strip() for kind in formats.split(",") if kind.strip()]
    for path in figure_export.write_figure(sets[set_name], figure, output or paths.results() / "export", kinds):
        click.echo(path)
    for fault in staleness.page_faults(sets[set_name], figure.page):
        warn(f"warning: {fault}")


@click.command()
@click.argument("run")
@results_option(f"The set of RUN; default: results/ or any committed set. {SET}")
@click.option("--repeats", default=3, type=POSITIVE, help="Number of new runs.")
@click.option(
    "--tolerance", default=0.1, type=Finite(10), help="For times and memory: 0.1 accepts a factor of 1.1 either way."
)  # fmt: skip
@click.option("--against", metavar="SET", help="Run nothing: compare with the runs of the same configuration in SET.")
@click.option("--notebook", type=click.Path(path_type=Path), help="What RUN executed, if it is not in notebooks/.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(run, folder, repeats, tolerance, against, notebook, as_json):
    """Repeat RUN and compare each of its results.

    RUN is the id of a run, its last part, or its folder, in your results or a committed set. It is trained again with the
    same seed, into results/verify/RUN; the comparison is kept as results/verify/RUN.json. RUN itself is only read.

    Samples and steps must be equal; losses and accuracies bit-equal, or closer than those of another seed. Throughput, step
    time and memory agree if the 95 % interval of now / then lies within the tolerance, differ if it lies outside, and are
    inconclusive otherwise. On other hardware times are shown and not compared.

    Exit code: 0 agree, 1 differ, 4 inconclusive, 2 RUN cannot be repeated here.
    """
    from hpc_utils import records
    from hpc_utils.analyze import reproduction
    from hpc_utils.launch import rerun
    from hpc_utils.publish import reproduction as account
    from hpc_utils.records import atomic
    from hpc_utils.records.folder import read_json
    from hpc_utils.records.study import Targets

    path = rerun.find_run(run, folder)
    original_set = path.parent.parent
    comparisons = paths.results() / "verify"
    original_records = records.load(original_set)
    originals = original_records.runs[original_records.runs.run_id == path.name]
    if originals.empty:
        state = original_records.unfinished.get(path.name, "absent")
        raise rerun.CannotRerun(
            f"{path.name}: {original_records.refused.get(path.name) or f'not complete ({state})'}"
        )
    rerun.unchanged(path)
    original = originals.iloc[0]
    if against:
        new = result_set(against)
        if new.samefile(original_set):
            raise rerun.CannotRerun(f"{against} is the set of the run itself: every run agrees with itself")
        new_records = records.load(new)
        repeated = reproduction.alike(new_records.runs, original, one_state=False)
        if copied := rerun.copies(original_records.runs, repeated):
            raise rerun.CannotRerun(
                f"{against} holds copies of runs of {rerun.folder_name(original_set)}, such as {copied[0]}: "
                "compare with new runs"
            )
        if repeated.empty:
            raise rerun.CannotRerun(f"{new} holds no complete run of {path.name}'s configuration")
    else:
        new = comparisons / path.name
        ids = rerun.execute(path, repeats, new, notebook=notebook, say=tell)
        new_records = records.load(new)
        repeated = new_records.runs[new_records.runs.run_id.isin(ids)]
    before = reproduction.alike(original_records.runs, original, one_state=True)
    study = rerun.study_of(path)
    judgements = reproduction.compare(
        path.name,
        reproduction.Side.of(before, original_records.epochs),
        reproduction.Side.of(repeated, new_records.epochs),
        tolerance=tolerance,
        margins=study.targets if study else Targets(),
    )
    verdict = reproduction.overall(judgements)
    then = {
        "results": rerun.folder_name(original_set),
        "runs": before.run_id.tolist(),
        "provenance": read_json(path / "provenance.json"),
    }
    now = {
        "results": rerun.folder_name(new),
        "runs": repeated.run_id.tolist(),
        "provenance": read_json(new / "runs" / repeated.run_id.iloc[0] / "provenance.json"),
    }
    differences = provenance.differences(then["provenance"], now["provenance"])
    written = datetime.now(UTC).isoformat(timespec="seconds")
    record = account.record(
        path.name, judgements, differences, verdict, written=written, tolerance=tolerance, then=then, now=now
    )
    atomic.write_json(comparisons / f"{path.name}.json", record)
    if as_json:
        click.echo(json.dumps(record, indent=1, allow_nan=False))
    else:
        origin = f"{path.name} of {then['results']}, {original.started[:10]}"
        title = f"{origin}, beside {counted(len(repeated), 'new run')}"
        click.echo("\n".join(account.lines(title, judgements, differences, verdict)))
        tell(f"comparison: {comparisons / f'{path.name}.json'}")
    sys.exit({reproduction.AGREE: 0, reproduction.DIFFER: 1}.get(verdict, 4))
