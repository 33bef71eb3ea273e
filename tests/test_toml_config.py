"""What is said to somebody who wrote a name that nobody knows."""

from __future__ import annotations

import pytest

from hpc_utils import toml_config

MANY = [f"name{number}" for number in range(9)]


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("scalin", ["scaling", "other"], "did you mean scaling?"),
        ("zzz", ["b", "a"], "known are a, b"),
        ("zzz", MANY[:6], "known are name0, name1, name2, name3, name4, name5"),
        ("zzz", MANY, "known are name0, name1, name2, name3, name4, name5, and 3 more"),
    ],
)
def test_the_nearest_or_the_first_few_are_named(name: str, known: list[str], said: str) -> None:
    assert toml_config.hint(name, known) == said


def test_near_names_are_in_order() -> None:
    assert toml_config.near("name", ["nam", "names", "other"]) == ["names", "nam"]
