"""`python -m benchmarks [NAME ...]`: measure, print tables, write CSV files."""

from __future__ import annotations

import importlib
import sys

import click

from hpc_utils import paths, provenance

from . import measure

SHORT = ("startup", "traces", "records", "nsys", "overhead", "start")  # the quickest first
NAMES = (*SHORT, "loaders", "monitor", "optimizations", "jpeg")
OF_COMPANIONS = {
    path.stem: ".".join(path.relative_to(paths.root()).with_suffix("").parts)
    for path in sorted(paths.root().glob("companions/*/benchmarks/*.py"))
    if path.stem != "__init__"
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice((*NAMES, *OF_COMPANIONS)))
@click.option(
    "--full", is_flag=True, help="All, larger work, ResNet-18 too, five rounds: half an hour instead of five minutes."
)
@click.option("--quick", is_flag=True, help="A smoke run: everything once, with little work.")
@click.option(
    "--repeats", type=click.IntRange(1), help="Rounds of each comparison [default: 3; --full 5; --quick 1]."
)
@click.option("--threads", type=click.IntRange(1), help="Cores of the CPU device [default: all].")
@click.option(
    "--compile/--no-compile", default=None, help="Include torch.compile in `optimizations` [default: on a GPU only]."
)
def main(
    names: tuple[str, ...],
    full: bool,
    quick: bool,
    repeats: int | None,
    threads: int | None,
    compile: bool | None,
) -> None:
    """Measure NAMES side by side; by default the quick ones, the quickest first; those of companions only by name."""
    options = measure.Options(
        repeats=repeats or (1 if quick else 5 if full else 3),
        full=full,
        quick=quick,
        threads=threads or len(provenance.core_groups()),
        compile=compile,
    )
    cpu = provenance.hardware().cpu
    click.echo(f"{cpu.model}, {cpu.usable} usable CPUs, hardware {provenance.hardware_id()}")
    if measure.busy() > 0.5:
        click.echo(f"the machine is busy (load {measure.busy():.1f}): expect noise, especially with several threads")
    failed = False
    for name in names or (NAMES if full or quick else SHORT):
        about = importlib.import_module(OF_COMPANIONS.get(name, f"benchmarks.{name}"))
        load = measure.busy()
        click.secho(f"\n{name}: {about.__doc__.splitlines()[0]}", bold=True)
        rows: list[measure.Row] = []
        broken = False
        try:
            rows.extend(about.run(options))
        except measure.BenchmarkError as error:
            click.echo(f"{name} failed: {error}", err=True)
            broken = failed = True
        if rows:
            click.echo(measure.result_table(rows))
        if rows and not broken:
            click.echo(f"written to {measure.save(name, rows, options, load)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
