"""Compares Extra-P's predictions with those of the performance model and the laws in chapter 03b.

    make extrap                                  # installs Extra-P beside ours, because it asks for an older NumPy
    python -m companions.limits.extrap [RESULTS] # default: results/reference/rehearsal

Reads the errors that chapter 03b exported. Extra-P (Calotoiu et al. 2013) gets the same input as the laws: the medians of one
curve's runs on few ranks.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import pandas as pd

from hpc_utils import paths

from . import laws

PATIENCE = 120.0  # s; Extra-P takes seconds
TABLE = "tables/scaling-model-errors.csv"


@click.command()
@click.argument("results", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(results: Path | None) -> None:
    """Fit Extra-P, the laws and the model to few ranks of RESULTS, and compare their predictions for more ranks."""
    table = (results or paths.reference() / "rehearsal") / TABLE
    if not table.is_file():
        raise click.ClickException(
            f"{table} not found: execute chapter 03b on runs with at least three numbers of ranks"
        )
    errors = pd.read_csv(table)
    most = errors.world_size[errors.points == "fitted"].max()
    fits = {kind: {**own, "Extra-P": extrap} for kind, own in laws.LAWS.items()}
    compared = laws.against_laws(errors, most, fits)
    if compared.empty:
        raise click.ClickException(f"{table} has no curve with two numbers of ranks to fit and a third to predict")
    shown = compared[[*laws.CURVE, "world_size", "law", "seconds", "measured", "error"]]
    click.echo(shown.to_string(index=False, float_format="{:.3g}".format))
    click.echo(f"\nfitted to at most {most} ranks; absolute errors:")
    off = compared.error.abs().groupby(compared.law, sort=False)
    click.echo(off.agg(["count", "median", "max"]).map("{:.3g}".format).to_string())


def extrap(ranks: Sequence[float], seconds: Sequence[float], more_ranks: pd.Series) -> pd.Series:
    """Fit Extra-P to step times (s) on these numbers of ranks, print its formula, and return its seconds on `more_ranks`.

    Raises:
        click.ClickException: Extra-P is not installed, or failed.
    """
    if (program := installed()) is None:
        raise click.ClickException("Extra-P is not installed: `make extrap` installs it into .venv-extrap")
    with tempfile.TemporaryDirectory(prefix="hpc-extrap-") as folder:
        source = Path(folder) / "measured.txt"
        points = " ".join(f"{rank:g}" for rank in ranks)
        data = "".join(f"DATA {float(one)!r}\n" for one in seconds)
        source.write_text(f"PARAMETER p\nPOINTS {points}\nREGION step\nMETRIC seconds\n{data}")
        options = ["--measure", "median", "--disable-progress", "--print", "functions-python"]
        try:
            done = subprocess.run(
                [program, "--text", source, *options], capture_output=True, text=True, timeout=PATIENCE
            )
        except (OSError, subprocess.TimeoutExpired) as why:
            raise click.ClickException(f"Extra-P did not run: {why}") from None
    formula = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    if done.returncode or not formula:
        raise click.ClickException(f"Extra-P found no model: {(done.stdout + done.stderr).strip()[-300:]}")
    click.echo(f"Extra-P: {formula} (s on p = {points} ranks)")
    return evaluate(formula, more_ranks)


def installed() -> str | None:
    """The path of Extra-P's command: in `.venv-extrap` beside this environment, or on PATH."""
    beside = Path(sys.prefix).parent / ".venv-extrap" / "bin" / "extrap"
    return str(beside) if beside.exists() else shutil.which("extrap")


def evaluate(formula: str, ranks: pd.Series) -> pd.Series:
    """Evaluate a formula that Extra-P printed as Python: numbers, p (the ranks), log2 and the operators + - * / **."""
    if not re.fullmatch(r"(?:log2\(|p|[-+*/() ]|\d+\.?\d*(?:e[-+]?\d+)?)+", formula):
        raise click.ClickException(f"not a formula of Extra-P: {formula}")
    return eval(formula, {"__builtins__": {}, "p": ranks, "log2": np.log2}) * np.ones_like(ranks)


if __name__ == "__main__":
    main()
