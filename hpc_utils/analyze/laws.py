"""Scaling laws to compare the performance model with: Amdahl's, Gustafson's, and what Extra-P finds.

They see the number of ranks and the time of a step, nothing else: of the link they know nothing.
"""

from __future__ import annotations

import ast
import operator
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

Law = Callable[[np.ndarray], np.ndarray]
PATIENCE = 120.0  # s; Extra-P takes seconds


class NoExtraP(LookupError):
    """Extra-P is not installed; the message says how to get it."""

    exit_code = 2


@dataclass(frozen=True)
class Fit:
    """A law with what was fitted: `seconds(ranks)`, and the formula in words."""

    name: str
    formula: str
    seconds: Law


def amdahl(ranks: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Strong scaling with a serial share s (Amdahl 1967): T(n) = T(1) (s + (1 - s) / n), by relative error."""
    ranks, seconds = np.asarray(ranks, float), np.asarray(seconds, float)
    serial, divided = _nonnegative([np.ones_like(ranks), 1 / ranks], seconds)
    whole = serial + divided
    return Fit(
        "Amdahl", f"{whole:.3g} s ({serial / whole:.1%} serial)", lambda n: serial + divided / np.asarray(n, float)
    )


def gustafson(ranks: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Weak scaling with a serial share s (Gustafson 1988): speed-up n - s (n - 1), so a step of equal work a rank takes
    T(1) n / (n - s (n - 1)). The share is searched, T(1) follows."""
    from scipy.optimize import minimize_scalar

    ranks, seconds = np.asarray(ranks, float), np.asarray(seconds, float)

    def shape(share: float, n: np.ndarray) -> np.ndarray:
        return n / (n - share * (n - 1))

    def first(share: float) -> float:
        return float(np.exp(np.mean(np.log(seconds / shape(share, ranks)))))

    def off(share: float) -> float:
        return float(np.sum(np.log(first(share) * shape(share, ranks) / seconds) ** 2))

    share = float(minimize_scalar(off, bounds=(0.0, 0.999), method="bounded").x)
    whole = first(share)
    return Fit(
        "Gustafson", f"{whole:.3g} s ({share:.1%} serial)", lambda n: whole * shape(share, np.asarray(n, float))
    )


def extrap(measured: pd.DataFrame) -> Fit:
    """What Extra-P (Calotoiu et al. 2013) makes of `measured`: columns world_size, seconds; one row a run.

    Its own program does the work: `make extrap` installs it beside ours, because it asks for an older NumPy.

    Raises:
        NoExtraP: it is not installed. ValueError: it found no model; holds what it said.
    """
    program = extrap_program()
    if program is None:
        raise NoExtraP(
            "Extra-P is not here: `make extrap` installs it into .venv-extrap, or set HPC_EXTRAP to its program"
        )
    worlds = sorted(set(measured.world_size))
    lines = ["PARAMETER p", f"POINTS {' '.join(f'{world:g}' for world in worlds)}", "REGION step", "METRIC seconds"]
    lines += [
        f"DATA {' '.join(f'{one!r}' for one in map(float, own.seconds))}" for _, own in measured.groupby("world_size")
    ]
    with tempfile.TemporaryDirectory(prefix="hpc-extrap-") as folder:
        source = Path(folder) / "measured.txt"
        source.write_text("\n".join(lines) + "\n")
        command = [
            program,
            "--text",
            source,
            "--measure",
            "median",
            "--disable-progress",
            "--print",
            "functions-python",
        ]
        try:
            # A notebook's own backend for figures is not known to it.
            environment = os.environ | {"MPLBACKEND": "agg"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as why:
            raise ValueError(f"Extra-P did not run: {why}") from None
    formula = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    if done.returncode or not formula:
        raise ValueError(f"Extra-P found no model: {(done.stdout + done.stderr).strip()[-300:]}")
    _evaluate(formula, np.ones(1))
    return Fit("Extra-P", formula, lambda n: _evaluate(formula, np.asarray(n, float)))


def extrap_program() -> str | None:
    """Where Extra-P's command is: $HPC_EXTRAP, `.venv-extrap` beside this environment, or the path."""
    beside = Path(sys.prefix).parent / ".venv-extrap" / "bin" / "extrap"
    return os.environ.get("HPC_EXTRAP") or (str(beside) if beside.exists() else shutil.which("extrap"))


def _nonnegative(terms: list[np.ndarray], seconds: np.ndarray) -> np.ndarray:
    """Coefficients, none below zero, of the terms that give `seconds` with least relative error."""
    from scipy.optimize import nnls

    return nnls(np.column_stack(terms) / seconds[:, None], np.ones(len(seconds)))[0]


OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip


def _evaluate(formula: str, ranks: np.ndarray) -> np.ndarray:
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
