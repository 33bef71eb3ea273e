"""`hpc import`: other people's results, checked as our own are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 20  # refused rows in the terminal; all are in provenance.json


@click.command("import")
@click.argument("file", metavar="FILE.csv", type=click.Path(path_type=Path))
@click.option(
    "--map", "mapping", metavar="MAPPING.toml", type=click.Path(path_type=Path), help="What its columns mean."
)
@click.option(
    "--as", "name", default="", metavar="NAME", help="Folder under results/foreign; by default the file's name."
)
@click.option("--dry-run", is_flag=True, help="Check and show only, keep nothing.")
@click.option("--draft", is_flag=True, help="Write an empty MAPPING.toml beside the file, with its header.")
def import_(file: Path, mapping: Path | None, name: str, dry_run: bool, draft: bool) -> None:
    """Read other people's results, check them as ours are, and keep them under results/foreign/NAME.

    A throughput that does not follow from its row's own time and samples is explained and corrected (a global count taken
    once on every rank; one rank's samples taken for all), or the row is refused and named; the exit code is then 1.
    """
    from hpc_utils import provenance
    from hpc_utils.records import foreign

    if draft:
        path = foreign.draft(file)
        click.echo(f"{path}: fill it in, then: hpc import {file} --map {path} --dry-run")
        return
    if mapping is None:
        raise click.UsageError("--map MAPPING.toml says what the columns mean; --draft writes an empty one")
    found = foreign.read(file, mapping, name)
    _show(found.runs)
    for line, why in list(found.refused.items())[:SHOWN]:
        click.secho(f"refused line {line}: {why}", fg="red", err=True)
    if len(found.refused) > SHOWN:
        click.secho(f"and {len(found.refused) - SHOWN} more", fg="red", err=True)
    if not dry_run:
        code = {"digest": provenance.measuring_digest(), "commit": provenance.commit(), "dirty": provenance.dirty()}
        click.echo(f"kept: {foreign.keep(found, code)}")
    sys.exit(1 if found.refused else 0)


def _show(runs: pd.DataFrame) -> None:
    """The points with both throughputs and efficiencies, what was corrected, and the verdicts counted."""
    from hpc_utils.analyze.foreign import efficiency

    table = efficiency(runs)
    told = [
        name for name in ("workload", "dataset", "precision", "device_name", "parallel") if table[name].nunique() > 1
    ]
    shown = table[[*told, "kind", "batch", "world_size", "nodes", "repeats"]].rename(columns={"world_size": "ranks"})
    for name in ("batch", "nodes"):
        shown[name] = table[name].map("{:.0f}".format, na_action="ignore")
    for title, rate in (("reported/s", "reported_throughput"), ("corrected/s", "throughput")):
        shown[title] = table[rate].map("{:,.1f}".format, na_action="ignore")
    for title, share in (("reported", "reported"), ("corrected", "efficiency")):
        shown[f"E {title}"] = table[share].map("{:.1%}".format, na_action="ignore")
    shown["verdict"] = table.verdict + table.note.map(lambda note: f"; {note}" if note else "")
    click.echo(shown.dropna(axis="columns", how="all").to_string(index=False, na_rep="-"))
    for remark, rows in runs.groupby("correction"):
        click.secho(f"corrected, {len(rows)} of {len(runs)} runs: {remark}", fg="yellow")
    counts = runs.verdict.value_counts()
    click.echo(f"{len(runs)} runs: {', '.join(f'{number} {verdict}' for verdict, number in counts.items())}")
