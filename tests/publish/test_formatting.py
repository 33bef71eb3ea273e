"""Digits follow the interval, units are scaled, and what has no interval says so."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hpc_utils.analyze.value import Value
from hpc_utils.publish import formatting

NAN = float("nan")


@dataclass(frozen=True)
class Like:
    """What `amounts` reads of a value."""

    value: float | str
    unit: str = "ratio"
    low: float = NAN
    high: float = NAN
    repeats: int = 0
    name: str = "topic.quantity"
    span: str = ""

    @property
    def has_interval(self) -> bool:
        return self.low == self.low


def plain(value: Like, form: str = "value") -> str:
    return formatting.text(value, form).replace(formatting.FIXED, " ").replace(formatting.NARROW, "'")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Like(0.7234, "share", 0.6391, 0.8077), "72.3 % [63.9, 80.8]"),
        (Like(0.7234, "share", 0.5, 0.9), "72 % [50, 90]"),
        (Like(3.1214, "ratio", 2.814, 3.461), "3.12 [2.81, 3.46]"),
        (Like(48121.4, "samples/s", 46800, 49450), "48'100 samples/s [46'800, 49'400]"),
        (Like(0.028583, "s", 0.0281, 0.0290), "28.58 ms [28.10, 29.00]"),
        (Like(0.5, "share", repeats=1), "50 % (a single run)"),
        (Like(0.5, "share", repeats=4), "50 % (4 repeats, no interval)"),
        (Like(0.5, "share"), "50 %"),
        (Like(0.0009, "share"), "< 0.1 %"),
        (Like(0.0009, "share", 0.0004, 0.0014), "0.090 % [0.040, 0.140]"),
        (Like(0.0011, "share"), "0.110 %"),
        (Like(-0.0009, "share"), "\u22120.0900 %"),
        (Like(3000, "samples/s", 100.2, 61000), "3000 samples/s [100, 61'000]"),
        (Like(0.3, "s", 0.008396, 5.1), "300 ms [8, 5100]"),
        (Like(1.0, "ratio", 1.0, 1.0, repeats=5), "1 [1, 1]"),
        (Like(0.512345678, "share", 0.512343, 0.512348), "51.235 % [51.234, 51.235]"),
        (Like("communication", "text"), "communication"),
        (Like(0.2, "share", 0.02, 0.6, span="allowance"), "20 % [2, 60] (allowance)"),
        (Like(6.94e-5, "kWh", 5e-5, 9e-5), "69 mWh [50, 90]"),
        (Like(6.94e-5, "ratio", 5e-5, 9e-5), "(6.9 [5.0, 9.0]) × 10⁻⁵"),
        (Like(3000, "samples/s", 100.2, 61000), "3000 samples/s [100, 61'000]"),
        (Like(0.3, "ratio", -0.0004, 0.6), "0.30 [\u22120.0004, 0.60]"),
        (Like(0.737, "share", 0.054, 10.05), "74 % [5, 1005]"),
        (Like(0.1697, "share", 0.000876, 32.9), "17 % [0.09, 3290]"),
        (Like(1e-4, "ratio", -0.2, 0.2), "0.00 [\u22120.20, 0.20]"),
    ],
)
def test_digits_follow_the_interval(value: Like, expected: str) -> None:
    assert plain(value, "interval") == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Like(78, "count"), "78"),
        (Like(151306, "count"), "151'306"),
        (Like(1437, "count"), "1437"),
        (Like(2.5e9, "B"), "2.50 GB"),
        (Like(1e9, "bit/s"), "1 Gbit/s"),
        (Like(0.3e9, "bit/s"), "300 Mbit/s"),
        (Like(3e-6, "s"), "3 µs"),
        (Like(90.0, "s"), "90 s"),
        (Like(9000.0, "s"), "2.50 h"),
        (Like(-0.0421, "share"), "\u22124.21 %"),
        (Like(0.0, "share"), "0 %"),
        (Like(0.000123, "kWh"), "123 mWh"),
        (Like(12, "EUR"), "12 EUR"),
        (Like(4.25, "images/J"), "4.25 images/J"),
        (Like(0.02, "points"), "2 points"),
        (Like(3.017e-9, "s/B"), "3.02 ns/B"),
        (Like(6.94e-5, "device-hours"), "6.9 × 10⁻⁵ device-hours"),
        (Like(2.92e-19, "ratio"), "2.9 × 10⁻¹⁹"),
        (Like(-9.99e-5, "ratio"), "\u22121.0 × 10⁻⁴"),
        (Like(512, "count", 64, 1024), "512"),
        (Like(NAN, "share"), "not known"),
    ],
)
def test_units_are_scaled_and_thousands_set_apart(value: Like, expected: str) -> None:
    assert plain(value) == expected


def test_a_cell_has_neither_unit_nor_kind_of_interval() -> None:
    value = Value("plan.node-hours", 22.7, "node-hours", "", 9.9, 153, span="allowance")
    assert plain(value, "interval") == "23 node-hours [10, 153] (allowance)"
    assert plain(value, "cell") == "23 [10, 153]"


def test_forms() -> None:
    value = Like(0.7234, "share", 0.6391, 0.8077, repeats=5)
    assert [plain(value, form) for form in ("low", "high", "repeats", "bare")] == ["63.9 %", "80.8 %", "5", "72.3"]


def test_what_a_value_cannot_say_is_refused() -> None:
    with pytest.raises(formatting.FormatError, match="no interval"):
        formatting.text(Like(0.5, "share"), "low")
    with pytest.raises(formatting.FormatError, match="no such form; there are value, interval"):
        formatting.text(Like(0.5, "share"), "percent")


def test_number_and_unit_stay_together() -> None:
    number, interval = formatting.text(Like(48121.4, "samples/s", 46800, 49450), "interval").split(" ")
    assert number == "48\u202f100\u00a0samples/s"
    assert interval == "[46\u202f800,\u00a049\u202f400]"


def test_which_units_can_be_printed() -> None:
    assert all(formatting.is_known(unit) for unit in ("share", "points", "s/B", "person-months", "GPU-hours", "CHF"))
    assert not any(formatting.is_known(unit) for unit in ("h", "of 1", "GFLOP/s", ""))
