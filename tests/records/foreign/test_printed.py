"""Numbers as they are printed: their value, and a slack that the true one always lies within."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.records.foreign.printed import Printed, number


@given(
    true=st.floats(1e-3, 1e9), form=st.sampled_from(["{:.3g}", "{:.4g}", "{:.3e}", "{:.8g}"]), rounded=st.booleans()
)
def test_the_true_value_lies_within_the_slack(true: float, form: str, rounded: bool) -> None:
    text = form.format(true)
    text = f"{float(text):f}".rstrip("0").rstrip(".") if rounded else text  # 12300 instead of 1.23e+04
    printed = number(text)
    assert abs(math.log(true / printed.value)) <= printed.slack * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("text", "half_unit"),
    [
        ("12.34", 0.005),
        ("0.50", 0.005),
        ("12300", 50),
        ("12300.0", 50),
        ("12345", 0.5),
        ("100", 0.5),
        ("1.20e3", 5),
        ("1e+03", 5),
    ],
)
def test_the_slack_is_half_a_unit_of_the_last_digit(text: str, half_unit: float) -> None:
    printed = number(text)
    assert math.isclose(printed.slack, -math.log1p(-half_unit / float(text)))


@pytest.mark.parametrize(
    ("text", "decimal", "thousands", "value"),
    [
        ("1.234,5", ",", ".", 1234.5), ("1234,5", ",", "", 1234.5), ("1,234.5", ".", ",", 1234.5),
        ("1\u202f234\u202f567,5", ",", " ", 1234567.5), ("12'345", ".", "'", 12345), ("1,5e3", ",", "", 1500),
    ],
)  # fmt: skip
def test_marks_of_other_countries(text: str, decimal: str, thousands: str, value: float) -> None:
    assert number(text, decimal, thousands).value == value


@pytest.mark.parametrize(
    ("text", "decimal", "thousands"),
    [
        ("1.5", ",", "."),  # not three digits behind the mark of thousands
        ("1.234,5", ",", ""), ("1,234.5", ".", ""), ("1,5", ".", ","), ("12_000", ".", ""), ("nan", ".", ""),
        ("inf", ".", ""), ("1e999", ".", ""), ("0x10", ".", ""), ("١٢", ".", ""), ("3 s", ".", ""), ("", ".", ""),
    ],
)  # fmt: skip
def test_what_is_no_number_by_these_marks_is_refused(text: str, decimal: str, thousands: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        number(text, decimal, thousands)


def test_slacks_add_up_in_products_and_ratios() -> None:
    found = Printed(6.0, 0.1) * Printed(4.0, 0.02) / Printed(8.0, 0.003)
    assert (found.value, found.slack) == (3.0, pytest.approx(0.123))
