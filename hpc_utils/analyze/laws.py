"""Scaling laws to compare the performance model with: Amdahl's and Gustafson's.

They see the number of ranks and the time of a step, and know nothing of the link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Law = Callable[[np.ndarray], np.ndarray]


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


def _nonnegative(terms: list[np.ndarray], seconds: np.ndarray) -> np.ndarray:
    """Coefficients, none below zero, of the terms that give `seconds` with least relative error."""
    from scipy.optimize import nnls

    return nnls(np.column_stack(terms) / seconds[:, None], np.ones(len(seconds)))[0]
