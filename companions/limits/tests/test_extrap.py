"""Extra-P: its formulas and its failures."""

from __future__ import annotations

import click
import numpy as np
import pandas as pd
import pytest

from companions.limits import extrap

RANKS = pd.Series([1, 2, 4, 8, 16])


@pytest.mark.parametrize(
    ("formula", "value"),
    [("1.5+0.5*log2(p)**(1)", 2.5), ("-2*p**(1/2)+1e1", 6.0), ("3", 3.0)],
)
def test_formulas_are_read(formula, value):
    assert extrap.evaluate(formula, pd.Series([4.0])).tolist() == pytest.approx([value])


@pytest.mark.parametrize("formula", ["p.tofile('x')", "().__class__", "exit()"])
def test_anything_else_is_not_evaluated(formula):
    with pytest.raises(click.ClickException, match="not a formula"):
        extrap.evaluate(formula, RANKS)


def test_a_missing_program_is_an_error_that_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(extrap.sys, "prefix", str(tmp_path / "none"))
    assert extrap.installed() is None
    with pytest.raises(click.ClickException, match="make extrap"):
        extrap.extrap([1, 2], [1.0, 2.0], RANKS)


def test_a_failing_program_is_an_error_with_its_message(monkeypatch, tmp_path):
    program = tmp_path / "extrap"
    program.write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(extrap, "installed", lambda: str(program))
    with pytest.raises(click.ClickException, match="no luck"):
        extrap.extrap([1, 2], [1.0, 2.0], RANKS)


@pytest.mark.skipif(not extrap.installed(), reason="Extra-P is not installed (`make extrap`)")
def test_extra_p_itself_finds_a_logarithm():
    more = extrap.extrap(RANKS, 1 + 0.6 * np.log2(RANKS), pd.Series([32.0]))
    assert more.tolist() == pytest.approx([4.0], rel=0.03)
