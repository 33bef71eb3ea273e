"""`hpc bundle`: the compendium for a machine without network."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import click

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MIB = 2**20


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--data", "names", multiple=True, metavar="NAME", help="A data set to take along [default: cifar10].")
@click.option(
    "--have",
    type=click.File(),
    help="What `pip list --format=freeze` prints there; NAME alone: any version. By default nothing but torch.",
)
@click.option("--python", default=PYTHON, show_default=True, help="The Python there.")
@click.option("--glibc", default="2.28", show_default=True, help="The C library there, `ldd --version`.")
@click.option("--machine", default=platform.machine(), show_default=True, help="The processor there, `uname -m`.")
@click.option("--piece", default=30, show_default=True, type=click.IntRange(1), help="Size of a file at most, MiB.")
def bundle(out: Path, names: tuple[str, ...], have, python: str, glibc: str, machine: str, piece: int) -> None:
    """Pack this commit, the wheels that are missing there and data sets into OUT, for a machine without network.

    \b
    hpc bundle gpu-day --have packages.txt --python 3.12
    bash gpu-day/start.sh --minutes 25                         there: docs/gpu-day.md
    """
    from hpc_utils.publish.release import bundle

    lines = [line.partition("==") for line in have or ()]
    packages = {name.partition(" @ ")[0].strip(): version.strip() for name, _, version in lines if name.strip()}
    there = bundle.Machine(python, glibc, machine, packages)
    bundle.make(out, names or ("cifar10",), there, piece * MIB, lambda line: click.echo(line, err=True))
    for path in sorted(out.iterdir()):
        click.echo(f"{path.stat().st_size / MIB:7.1f} MiB  {path}")
