"""Extra-P's functions on the points that the performance model and the laws of chapter 03 predict.

    make extrap                                # installs Extra-P beside ours, because it asks for an older NumPy
    python -m benchmarks.extrap [RESULTS]      # default: results/reference/rehearsal

Reads the errors that chapter 03 exported. Extra-P (Calotoiu et al. 2013) sees what the laws see: the medians of one curve's runs
on few ranks.
"""

from __future__ import annotations

import ast
import operator
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
from hpc_utils.analyze.model import validation

PATIENCE = 120.0  # s; Extra-P takes seconds
TABLE = "tables/scaling-model-errors.csv"


@click.command()
@click.argument("results", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(results: Path | None) -> None:
    """Fit Extra-P's functions, the laws and the model to few ranks of RESULTS, and compare what they predict of more."""
    table = (results or paths.reference() / "rehearsal") / TABLE
    if not table.is_file():
        raise click.ClickException(
            f"{table} is not there: execute chapter 03 on runs of three numbers of ranks or more"
        )
    errors = pd.read_csv(table)
    most = errors.world_size[~errors.held_out].max()
    compared = validation.compare(errors, most, {kind: (*own, extrap) for kind, own in validation.LAWS.items()})
    if compared.empty:
        raise click.ClickException(
            f"{table} holds no curve of two numbers of ranks to be fitted on and a third to predict"
        )
    shown = compared[[*validation.CURVE, "world_size", "law", "formula", "seconds", "measured", "error"]]
    click.echo(shown.to_string(index=False, float_format="{:.3g}".format))
    click.echo(f"\nfitted to at most {most} ranks; errors without their sign:")
    off = compared.error.abs().groupby(compared.law, sort=False)
    click.echo(off.agg(["count", "median", "max"]).map("{:.3g}".format).to_string())


def extrap(ranks: Sequence[float], seconds: Sequence[float]) -> validation.Law:
    """What Extra-P makes of step times (s) on these numbers of ranks.

    Raises:
        click.ClickException: it is not installed, or found no model; holds its message.
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
    evaluate(formula, np.ones(1))
    return validation.Law("Extra-P", formula, lambda n: evaluate(formula, np.asarray(n, float)))


def installed() -> str | None:
    """Where Extra-P's command is: `.venv-extrap` beside this environment, or the path."""
    beside = Path(sys.prefix).parent / ".venv-extrap" / "bin" / "extrap"
    return str(beside) if beside.exists() else shutil.which("extrap")


OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip


def evaluate(formula: str, ranks: np.ndarray) -> np.ndarray:
    """A formula of numbers, p (the ranks), log2, + - * / and **, and of nothing else.

    Raises:
        ValueError: there is something else in it.
    """

    def value(node: ast.AST) -> np.ndarray:
        match node:
            case ast.Expression(body):
                return value(body)
            case ast.Constant(int() | float() as number):
                return np.full_like(ranks, number)
            case ast.Name("p"):
                return ranks
            case ast.UnaryOp(sign, operand) if type(sign) in OPERATORS:
                return OPERATORS[type(sign)](value(operand))
            case ast.BinOp(left, sign, right) if type(sign) in OPERATORS:
                return OPERATORS[type(sign)](value(left), value(right))
            case ast.Call(ast.Name("log2"), [argument], []):
                return np.log2(value(argument))
        raise ValueError(f"Extra-P's formula holds what is not known here: {formula}")

    try:
        return value(ast.parse(formula, mode="eval"))
    except SyntaxError:
        raise ValueError(f"Extra-P said no formula: {formula[-300:]}") from None


if __name__ == "__main__":
    main()
