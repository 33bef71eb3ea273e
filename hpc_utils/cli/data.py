"""`hpc data`: data sets."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def data() -> None:
    """Data sets: fetch once, train from everywhere."""


@data.command("list")
def data_list() -> None:
    """List the data sets, and which of them are here."""
    from hpc_utils import datasets

    for name, about in datasets.DATASETS.items():
        try:
            datasets.load(name, "train")
            here = "here"
        except datasets.DataError:
            here = f"hpc data fetch {name}"
        click.echo(f"{name:15} {about.title}  [{here}]")


@data.command("fetch")
@click.argument("names", nargs=-1, required=True)
@click.option("--mirror", type=click.Path(path_type=Path), help="A local folder to take it from ($HPC_DATA_MIRROR).")
@click.option("--force", is_flag=True, help="Fetch and decode again although it is here.")
def data_fetch(names: tuple[str, ...], mirror: Path | None, force: bool) -> None:
    """Download (or take from a mirror), verify and decode the data sets NAMES."""
    from hpc_utils import datasets

    for name in names:
        click.echo(datasets.fetch(name, mirror=mirror, force=force))


@data.command("verify")
@click.argument("names", nargs=-1, required=True)
def data_verify(names: tuple[str, ...]) -> None:
    """Compare the checksum of every image and label with the catalogue."""
    from hpc_utils import datasets

    for name in names:
        datasets.verify(name)
        click.echo(f"{name}: verified")
