"""The pinned numbers, computed again."""

from __future__ import annotations

import copy

import pytest

from . import differences, numbers, profiles, read

PROFILES = read("profiles")
HERE = profiles.here()


def same(pinned: dict, computed: dict) -> None:
    found = differences(pinned, computed)
    more = f"\n... and {len(found) - 20} more" if len(found) > 20 else ""
    assert not found, "pinned numbers differ:\n" + "\n".join(found[:20]) + more


@pytest.mark.parametrize("name", numbers.SETS)
def test_the_numbers_of_a_result_set_are_unchanged(name):
    same(read(name), numbers.of_set(name))


def test_the_plan_takes_what_it_took():
    same(read("plan"), numbers.plan())


def test_thresholds():
    same({"thresholds": PROFILES["thresholds"]}, {"thresholds": profiles.thresholds()})


@pytest.mark.parametrize("name", sorted(PROFILES.keys() - {"thresholds"}))
def test_a_profile_is_explained_as_it_was(name):
    if not profiles.PROFILES.is_dir():
        pytest.skip(f"no folder of real profiles at {profiles.PROFILES} (set HPC_DATA_MIRROR)")
    if name.endswith(".nsys-rep") and not profiles.readable():
        pytest.skip("no nsys here to open reports with: PATH=$(env/nsight.sh):$PATH unpacks Debian's")
    same({name: PROFILES[name]}, {name: profiles.profile(HERE[name])})


def test_every_profile_is_pinned():
    assert HERE.keys() <= PROFILES.keys()


def test_what_changes_is_found():
    pinned = read("rehearsal")
    assert differences(pinned, pinned) == []
    [row, *_] = pinned["efficiency"]
    for change in (1 + 2e-9, 1 - 2e-9):
        changed = copy.deepcopy(pinned)
        changed["efficiency"][row]["efficiency"][0] *= change
        [line] = differences(pinned, changed)
        assert line.startswith(f"changed: efficiency | {row} | efficiency | 0: ")
    changed = copy.deepcopy(pinned)
    changed["efficiency"][row]["efficiency"][0] *= 1 + 1e-10
    assert differences(pinned, changed) == []
    lacking = {subject: rows for subject, rows in pinned.items() if subject != "targets"}
    lost, new = differences(pinned, lacking), differences(lacking, pinned)
    assert lost and len(lost) == len(new)
    assert all(line.startswith("missing: targets") for line in lost) and all(
        line.startswith("new: targets") for line in new
    )
