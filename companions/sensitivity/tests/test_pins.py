"""The numbers of the committed factorial, pinned as those of `tests.pins`; executed as a module, this file writes them anew."""

from __future__ import annotations

from pathlib import Path

from companions.sensitivity import factorial
from hpc_utils import paths, records
from tests.pins import Pins, differences, read, write
from tests.pins.rows import rows

PINS = str(Path(__file__).with_name("pins"))


def factorials() -> Pins:
    folder = paths.reference() / "epyc-avx512"
    runs = records.load(folder).runs
    found: Pins = {}
    for index in records.studies(folder):
        for series, design in factorial.designs(runs, index).items():
            stem = f"{index.name} {series}"
            best = factorial.best(design, index.targets.sensitivity_gain)
            pairs = factorial.interactions(design).dropna(subset=["beyond_low"])
            found |= {
                f"{stem}: effects": rows(factorial.effects(design), "effect", "share p beyond"),
                f"{stem}: levels": rows(factorial.main_effects(design), "factor level", "gain+"),
                f"{stem}: pairs": rows(pairs, "first first_level second second_level", "beyond+"),
                f"{stem}: best": {"all": rows(best, "", "point gain+ repeats verdict")[""]},
            }
    return found


def test_the_numbers_of_the_committed_factorial_are_unchanged() -> None:
    assert differences(read(PINS), factorials()) == []


if __name__ == "__main__":
    write(PINS, factorials())
