"""Hints for an unknown name."""

from __future__ import annotations

import pytest

from hpc_utils import toml_config


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [("scalin", ["scaling", "other"], "did you mean scaling?"), ("zzz", ["b", "a"], "known are a, b")],
)
def test_the_nearest_or_all_are_named(name: str, known: list[str], expected: str) -> None:
    assert toml_config.hint(name, known) == expected
