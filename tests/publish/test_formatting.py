"""Digits follow the interval, units are scaled, and what has no interval says so."""

from __future__ import annotations

import pytest

from hpc_utils.analyze.value import Value
from hpc_utils.publish import formatting

NAN = float("nan")


def like(
    value: float | str, unit: str = "ratio", low: float = NAN, high: float = NAN, repeats: int = 0, span: str = ""
) -> Value:
    return Value("topic.quantity", value, unit, "", low, high, repeats, span=span)


def plain(value: Value, form: str = "value") -> str:
    return formatting.text(value, form).replace(formatting.FIXED, " ").replace(formatting.NARROW, "'")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (like(0.7234, "share", 0.6391, 0.8077), "72.3 % [63.9, 80.8]"),
        (like(48121.4, "samples/s", 46800, 49450), "48'100 samples/s [46'800, 49'400]"),
        (like(0.028583, "s", 0.0281, 0.0290), "28.58 ms [28.10, 29.00]"),
        (like(0.5, "share", repeats=1), "50 % (a single run)"),
        (like(0.5, "share", repeats=4), "50 % (4 repeats, no interval)"),
        (like(0.5, "share"), "50 %"),
        (like(0.0009, "share"), "< 0.1 %"),
        (like(0.0009, "share", 0.0004, 0.0014), "0.090 % [0.040, 0.140]"),
        (like(-0.0009, "share"), "\u22120.0900 %"),
        (like(3000, "samples/s", 100.2, 61000), "3000 samples/s [100, 61'000]"),
        (like(0.3, "s", 0.008396, 5.1), "300 ms [8, 5100]"),
        (like(1.0, "ratio", 1.0, 1.0, repeats=5), "1 [1, 1]"),
        (like(0.512345678, "share", 0.512343, 0.512348), "51.235 % [51.234, 51.235]"),
        (like("communication", "text"), "communication"),
        (like(0.2, "share", 0.02, 0.6, span="allowance"), "20 % [2, 60] (allowance)"),
        (like(6.94e-5, "kWh", 5e-5, 9e-5), "69 mWh [50, 90]"),
        (like(6.94e-5, "ratio", 5e-5, 9e-5), "(6.9 [5.0, 9.0]) × 10⁻⁵"),
        (like(0.1697, "share", 0.000876, 32.9), "17 % [0.09, 3290]"),
        (like(1e-4, "ratio", -0.2, 0.2), "0.00 [\u22120.20, 0.20]"),
    ],
)
def test_digits_follow_the_interval(value: Value, expected: str) -> None:
    assert plain(value, "interval") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (like(78, "count"), "78"),
        (like(1437, "count"), "1437"),
        (like(2.5e9, "B"), "2.50 GB"),
        (like(0.3e9, "bit/s"), "300 Mbit/s"),
        (like(9000.0, "s"), "2.50 h"),
        (like(-0.0421, "share"), "\u22124.21 %"),
        (like(0.000123, "kWh"), "123 mWh"),
        (like(4.25, "images/J"), "4.25 images/J"),
        (like(0.02, "points"), "2 points"),
        (like(3.017e-9, "s/B"), "3.02 ns/B"),
        (like(-9.99e-5, "ratio"), "\u22121.0 × 10⁻⁴"),
        (like(512, "count", 64, 1024), "512"),
    ],
)
def test_units_are_scaled_and_thousands_set_apart(value: Value, expected: str) -> None:
    assert plain(value) == expected


def test_forms() -> None:
    value = like(0.7234, "share", 0.6391, 0.8077, repeats=5, span="allowance")
    forms = ["low", "high", "repeats", "bare", "cell"]
    assert [plain(value, form) for form in forms] == ["63.9 %", "80.8 %", "5", "72.3", "72.3 [63.9, 80.8]"]


def test_what_a_value_cannot_say_is_refused() -> None:
    with pytest.raises(formatting.FormatError, match="no interval"):
        formatting.text(like(0.5, "share"), "low")
    with pytest.raises(formatting.FormatError, match="no such form; there are value, interval"):
        formatting.text(like(0.5, "share"), "percent")


def test_number_and_unit_stay_together() -> None:
    number, interval = formatting.text(like(48121.4, "samples/s", 46800, 49450), "interval").split(" ")
    assert number == "48\u202f100\u00a0samples/s"
    assert interval == "[46\u202f800,\u00a049\u202f400]"
