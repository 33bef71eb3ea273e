"""`hpc bench compute`: what a model's computing costs on one device."""

from __future__ import annotations

from statistics import median

import click


def _whole(context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    try:
        return [int(part) for part in value.split(",") if part.strip()]
    except ValueError:
        raise click.BadParameter(f"{value!r}: whole numbers joined by commas, as 8,16,32") from None


@click.command()
@click.option("-p", "--parameter", "assignments", multiple=True, metavar="NAME=VALUE", help="See `hpc params`.")
@click.option("--batches", default="8,16,32,64", show_default=True, callback=_whole, help="Samples a step.")
@click.option("--repeats", default=5, show_default=True, help="Measured steps at each, in turn.")
def compute(assignments: tuple[str, ...], batches: list[int], repeats: int) -> None:
    """Measure what a model costs on one device of this machine, without a process group.

    For each of several batch sizes the seconds of data, forward, backward and optimizer, and at which part of the backward
    pass each gradient is ready. The performance model reads this record.

    \b
    hpc bench compute -p workload=resnet18 -p dataset=cifar10 --batches 8,16,32,64
    """
    from hpc_utils.config import RunConfig, parse_assignments
    from hpc_utils.launch.diagnostics import compute_profile
    from hpc_utils.records.compute_profile import PHASES
    from hpc_utils.records.folder import read_json

    path = compute_profile(RunConfig(**parse_assignments(assignments)), batches, repeats)
    click.echo(f"{'batch':>6} " + " ".join(f"{phase:>12}" for phase in PHASES) + "   median ms")
    for one in read_json(path)["batches"]:
        click.echo(f"{one['batch']:6} " + " ".join(f"{1e3 * median(one[phase]):12.2f}" for phase in PHASES))
    click.echo(path)
