"""Amdahl's and Gustafson's laws and Extra-P's models, fitted to data that follow them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze import laws

RANKS = np.array([1, 2, 4, 8, 16])


def test_amdahl_finds_the_serial_share_and_never_a_negative_one():
    fitted = laws.amdahl(RANKS, 2.0 * (0.1 + 0.9 / RANKS))
    assert fitted.seconds([1, 32]) == pytest.approx([2.0, 2.0 * (0.1 + 0.9 / 32)])
    assert fitted.formula == "2 s (10.0% serial)"
    assert "(0.0% serial)" in laws.amdahl(RANKS, 2.0 / RANKS**1.1).formula  # super-linear


def test_gustafson_finds_the_serial_share_of_equal_work_a_rank():
    fitted = laws.gustafson(RANKS, 0.5 * RANKS / (RANKS - 0.2 * (RANKS - 1)))
    assert fitted.seconds([1, 64]) == pytest.approx([0.5, 0.5 * 64 / (64 - 0.2 * 63)], rel=1e-3)


@pytest.mark.parametrize(
    ("formula", "value"),
    [("1.5+0.5*log2(p)**(1)", 2.5), ("-2*p**(1/2)+1e1", 6.0), ("3", 3.0)],
)
def test_extra_ps_formulas_are_read(formula, value):
    assert laws._evaluate(formula, np.array([4.0])) == pytest.approx([value])


@pytest.mark.parametrize("formula", ["__import__('os').getcwd()", "p.real", "q+1", "log2(p, 2)", "1;2", "[p]"])
def test_nothing_else_is_evaluated(formula):
    with pytest.raises(ValueError, match="Extra-P"):
        laws._evaluate(formula, np.array([4.0]))


def test_without_extra_p_it_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("HPC_EXTRAP", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(laws.sys, "prefix", str(tmp_path / "none"))
    with pytest.raises(laws.NoExtraP, match="make extrap"):
        laws.extrap(pd.DataFrame({"world_size": [1, 2], "seconds": [1.0, 2.0]}))


@pytest.mark.skipif(laws.extrap_program() is None, reason="Extra-P is not installed (`make extrap`)")
def test_extra_p_itself_finds_a_logarithm_from_a_notebook_too(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    repeats = pd.DataFrame(
        {
            "world_size": np.repeat(RANKS, 3),
            "seconds": np.repeat(1 + 0.6 * np.log2(RANKS), 3) * np.tile([0.99, 1, 1.01], 5),
        }
    )
    assert laws.extrap(repeats).seconds([32]) == pytest.approx([4.0], rel=0.03)


def test_what_a_broken_program_says_is_passed_on(monkeypatch, tmp_path):
    program = Path(tmp_path / "extrap")
    program.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("HPC_EXTRAP", os.fspath(program))
    with pytest.raises(ValueError, match="no luck"):
        laws.extrap(pd.DataFrame({"world_size": [1, 2], "seconds": [1.0, 2.0]}))
