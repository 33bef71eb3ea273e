from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.records import checks

from .conftest import epoch_rows, provenance_json, rank_rows, run_json

POSITIVE = st.floats(1e-3, 1e9)


def faults(**changes) -> list[str]:
    """What is wrong with true records after `changes` to them."""
    records = {
        "run": run_json("x"), "provenance": provenance_json(), "epochs": epoch_rows(), "ranks": rank_rows()
    } | changes  # fmt: skip
    return list(checks.run_faults(**records))


@given(samples=st.integers(1, 10**12), seconds=POSITIVE, factor=st.integers(2, 1024))
def test_a_throughput_multiplied_by_the_world_size_is_found(samples: int, seconds: float, factor: int) -> None:
    row = {"samples": samples, "seconds": seconds, "throughput": samples / seconds}
    assert not [*checks.epoch_faults(row)]
    (fault,) = checks.epoch_faults(row | {"throughput": factor * samples / seconds})
    assert f"is {factor} times what {samples:.9g} samples in" in fault


@pytest.mark.parametrize("name", ["samples", "seconds", "throughput"])
@pytest.mark.parametrize("value", [0, None, "many", math.nan])
def test_each_of_the_three_is_a_positive_number(name: str, value: object) -> None:
    row = {"samples": 64, "seconds": 2.0, "throughput": 32.0} | {name: value}
    assert list(checks.epoch_faults(row)) == [f"{name} is {value!r}, not a positive number"]


def test_a_run_without_digest_and_commit_is_refused() -> None:
    assert faults(provenance={"digest": None, "commit": None}) == [
        "neither a digest of the measuring code nor a commit is known"
    ]
    assert faults(provenance={"digest": "d"}) == faults(provenance={"commit": "c"}) == []


def test_tables_that_contradict_each_other() -> None:
    epochs, ranks = epoch_rows(), rank_rows()
    one_short = [*ranks[:-1], ranks[-1] | {"samples": 319}]
    assert faults(ranks=one_short) == ["the ranks counted 639 samples, but the epochs hold 640"]
    assert faults(ranks=ranks[:1])[0] == "1 rank left records, but the world size is 2"
    assert faults(epochs=[])[0] == "no epoch was recorded"
    slow = [ranks[0] | {"seconds": 2.2}, ranks[1]]
    assert faults(ranks=slow) == ["the epochs' seconds sum to 2.1, less than a rank's own 2.2"]
    doubled = [epochs[0], epochs[1] | {"throughput": 2 * epochs[1]["throughput"]}]
    assert len(faults(epochs=doubled)) == 1 and faults(epochs=doubled)[0].startswith("epoch 2: throughput")


def test_a_global_count_on_every_rank_is_refused() -> None:
    """The commonest error as it really happens: throughput follows from the false count, so the identity holds."""
    epochs = [{"epoch": 1, "steps": 10, "samples": 1280, "seconds": 2.0, "throughput": 640.0}]
    ranks = [{"samples": 640, "seconds": 2.0}] * 2
    run = {"world_size": 2, "global_batch": 64}
    assert "1280 samples, but 10 steps of 64 hold 640" in next(checks.run_faults(run, {"digest": "d"}, epochs, ranks))
    assert not [*checks.run_faults(run | {"global_batch": 128}, {"digest": "d"}, epochs, ranks)]


@pytest.mark.parametrize(("samples", "is_true"), [(20, False), (576, False), (577, True), (640, True), (641, False)])
def test_samples_of_whole_steps_but_for_a_smaller_last_one(samples: int, is_true: bool) -> None:
    """20: `len` of a batch that is a dict of two tensors."""
    epochs = [{"epoch": 1, "steps": 10, "samples": samples, "seconds": 2.0, "throughput": samples / 2}]
    found = faults(
        run={"world_size": 1, "global_batch": 64}, epochs=epochs, ranks=[{"samples": samples, "seconds": 2}]
    )
    assert (found == []) == is_true and len(found) <= 1


@pytest.mark.parametrize("accuracy", [93.0, -0.1, "good"])
def test_an_accuracy_is_a_share(accuracy: object) -> None:
    first, second = epoch_rows()
    assert len(faults(epochs=[first, second | {"test_accuracy": accuracy}])) == 1
    assert faults(epochs=[first | {"test_accuracy": None}, second | {"test_accuracy": 1}]) == []
