"""What can be a value at all."""

from __future__ import annotations

import math

import pytest

from hpc_utils.analyze.value import Value


def test_a_value_has_an_interval_or_none() -> None:
    assert Value("a.b", 1.0, "s", "", 0.9, 1.1).has_interval
    assert not Value("a.b", 1.0, "s", "").has_interval


@pytest.mark.parametrize(
    "given",
    [
        {"value": math.nan},
        {"value": math.inf},
        {"low": 0.9},
        {"low": 1.2, "high": 1.1},
        {"value": "fast"},
        {"unit": "text"},
    ],
)
def test_what_is_no_number_or_no_interval_is_refused(given: dict) -> None:
    with pytest.raises(ValueError, match=r"a\.b"):
        Value(**({"name": "a.b", "value": 1.0, "unit": "s", "caption": ""} | given))


def test_a_value_is_in_its_own_interval() -> None:
    with pytest.raises(ValueError, match=r"0\.99 lies outside its own interval, \[0\.72, 0\.93\]"):
        Value("a.b", 0.99, "share", "", 0.72, 0.93)
    assert Value("a.b", 0.93 + 1e-12, "share", "", 0.72, 0.93).has_interval, "rounding is no fault"
