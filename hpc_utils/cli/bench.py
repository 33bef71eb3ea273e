"""`hpc bench`: what was asked of a machine and not of a training run."""

from __future__ import annotations

import click

from .compute import compute


@click.group()
def bench() -> None:
    """Measure a machine: computing."""


bench.add_command(compute)
