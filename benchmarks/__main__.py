"""`python -m benchmarks [NAME ...]`: measure, print tables, keep CSVs."""

from __future__ import annotations

import importlib
import sys

import click

from hpc_utils import provenance

from . import measure

NAMES = (
    "startup",
    "traces",
    "records",
    "nsys",
    "start",
    "loaders",
    "overhead",
    "optimizations",
)  # the quickest first


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option(
    "--full", is_flag=True, help="Larger work, ResNet-18 too, five rounds: half an hour instead of five minutes."
)
@click.option("--quick", is_flag=True, help="A smoke run: everything once, with little work. It proves nothing.")
@click.option(
    "--repeats", type=click.IntRange(1), help="Rounds of each comparison [default: 3; --full 5; --quick 1]."
)
@click.option(
    "--threads", type=click.IntRange(1), help="Cores of a CPU device where it is all of them [default: all]."
)
@click.option(
    "--runs", type=click.IntRange(1), help="Run folders of `records` [default: 1000; --full 10000; --quick 150]."
)
@click.option(
    "--kernels",
    type=click.IntRange(1000),
    help="Largest export of `nsys` [default: 1 million; --full 10 million; --quick 10000].",
)
@click.option(
    "--compile/--no-compile", default=None, help="With torch.compile in `optimizations` [default: on a GPU]."
)
def main(
    names: tuple[str, ...],
    full: bool,
    quick: bool,
    repeats: int | None,
    threads: int | None,
    runs: int | None,
    kernels: int | None,
    compile: bool | None,
) -> None:
    """Measure NAMES (default: all of them, the quickest first) side by side."""
    options = measure.Options(
        repeats=repeats or (1 if quick else 5 if full else 3),
        full=full,
        quick=quick,
        threads=threads or len(provenance.core_groups()),
        runs=runs or (150 if quick else 10_000 if full else 1_000),
        kernels=kernels or (10_000 if quick else 10_000_000 if full else 1_000_000),
        compile=compile,
    )
    cpu = provenance.hardware()["cpu"]
    click.echo(f"{cpu.get('model')}, {cpu.get('usable')} usable CPUs, hardware {provenance.hardware_id()}")
    if measure.busy() > 0.5:
        click.echo(f"others use this machine (load {measure.busy():.1f}): expect noise, above all between threads")
    failed = False
    for name in names or NAMES:
        about = importlib.import_module(f"benchmarks.{name}")
        load = measure.busy()
        click.secho(f"\n{name}: {about.__doc__.splitlines()[0]}", bold=True)
        rows: list[measure.Row] = []
        broken = False
        try:
            rows.extend(about.run(options))
        except measure.BenchmarkError as error:
            click.echo(f"{name} could not be measured to its end: {error}", err=True)
            broken = failed = True
        if rows:
            click.echo(measure.table(rows))
        if rows and not broken:
            click.echo(f"kept in {measure.save(name, rows, options, load)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
