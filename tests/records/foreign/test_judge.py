"""What a row's throughput, time and samples say about each other: the field's errors are found, and only those."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpc_utils.records.foreign import judge as judging
from hpc_utils.records.foreign.errors import RowFault
from hpc_utils.records.foreign.judge import CONSISTENT, ONE_RANK, PER_RANK, UNCHECKED, judge
from hpc_utils.records.foreign.mapping import Mapping
from hpc_utils.records.foreign.printed import Printed, number
from hpc_utils.records.foreign.table import Row

COLUMNS = {"world_size": "n", "throughput": "x", "seconds": "t", "samples": "s"}
TIMES = st.floats(0.5, 1e5)
SAMPLES = st.integers(10**7, 10**9)  # at least 100 a second: three digits are three then, also in %g


def mapping(**more: object) -> Mapping:
    return Mapping(title="t", source="s", throughput_is="global", samples_is="global", columns=COLUMNS, **more)


def row(ranks: int, throughput: str, seconds: str, samples: float = 50_000, **counts: int) -> Row:
    measures = {"throughput": number(throughput), "seconds": number(seconds), "samples": Printed(samples)}
    return Row(2, {}, {"world_size": ranks} | counts, measures)


@given(ranks=st.integers(2, 1024), samples=SAMPLES, seconds=TIMES, digits=st.integers(3, 8))
def test_the_classical_error_is_found_and_undone(ranks: int, samples: int, seconds: float, digits: int) -> None:
    """The global data set counted once per rank, however coarsely it is printed from three digits on."""
    found = judge(row(ranks, f"{ranks * samples / seconds:.{digits}g}", f"{seconds:.3f}", samples), mapping())
    assert found.verdict == PER_RANK
    assert "once per rank" in found.correction
    assert found.throughput == pytest.approx(samples / seconds, rel=1e-3)
    assert found.reported / found.throughput == pytest.approx(ranks, rel=0.01)


@given(ranks=st.integers(2, 1024), samples=SAMPLES, seconds=TIMES)
def test_one_ranks_samples_taken_for_all_are_found(ranks: int, samples: int, seconds: float) -> None:
    text = f"{samples / seconds / ranks:.3g}"
    assume(sum(map(str.isdigit, text.partition("e")[0].lstrip("0."))) >= 3)  # %g leaves out what follows a 1 of 1.00
    found = judge(row(ranks, text, f"{seconds:.3f}", samples), mapping())
    assert (found.verdict, found.throughput) == (ONE_RANK, pytest.approx(samples / seconds, rel=1e-3))


@given(ranks=st.integers(1, 1024), samples=SAMPLES, seconds=TIMES, digits=st.integers(3, 17))
def test_what_is_right_stays(ranks: int, samples: int, seconds: float, digits: int) -> None:
    found = judge(row(ranks, f"{samples / seconds:.{digits}g}", f"{seconds:.6f}", samples), mapping())
    assert (found.verdict, found.correction) == (CONSISTENT, "")


@given(factor=st.floats(1e-4, 1e4), seconds=TIMES)
def test_one_rank_is_never_corrected(factor: float, seconds: float) -> None:
    try:
        found = judge(row(1, f"{factor * 50_000 / seconds:.6g}", f"{seconds:.3f}"), mapping())
    except RowFault as fault:
        assert "1 rank does not explain" in str(fault)
    else:
        assert found.verdict in (CONSISTENT, UNCHECKED)  # 2e-06 is printed too coarsely to tell
        assert found.correction == ""


@given(factor=st.floats(0.01, 100), ranks=st.sampled_from([2, 4, 8, 64]))
def test_any_other_factor_is_refused_with_both_numbers(factor: float, ranks: int) -> None:
    assume(all(abs(factor / known - 1) > 0.02 for known in (1, ranks, 1 / ranks)))
    with pytest.raises(RowFault, match=f"times what 50000 samples in 10 s give .5000/s., which {ranks} ranks do not"):
        judge(row(ranks, f"{factor * 5000:.6g}", "10.00"), mapping())


@pytest.mark.parametrize(
    ("throughput", "counts", "hint"),
    [
        ("5000000", {}, "is the time in milliseconds? (scale = 0.001)"),
        ("20000", {"nodes": 4, "ranks_per_node": 2}, "it is nodes times too large"),
        ("4900", {}, "off by 2.00%, more than what is printed allows; were the two timed apart? (tolerance = 0.01)"),
    ],
)
def test_a_hint_where_the_factor_looks_like_something(throughput: str, counts: dict, hint: str) -> None:
    with pytest.raises(RowFault) as refused:
        judge(row(8, throughput, "10.00", **counts), mapping())
    assert str(refused.value).endswith(hint)


def test_what_the_mapping_allows_is_no_fault() -> None:
    assert judge(row(8, "4900", "10.00"), mapping(tolerance=0.03)).verdict == CONSISTENT
    assert judge(row(8, "39200", "10.00"), mapping(tolerance=0.03)).verdict == PER_RANK


def test_too_few_digits_decide_nothing() -> None:
    found = judge(row(2, "12345", "1"), mapping())
    assert (found.verdict, found.throughput) == (UNCHECKED, 12345)
    assert "too few digits" in found.row.said[-1]


def test_steps_and_batch_know_better_than_a_count_taken_on_every_rank() -> None:
    """The identity holds, since throughput was computed from the false count; as it is for our own records."""
    found = judge(row(4, "20000", "10.00", 200_000, steps=195, global_batch=256), mapping())
    assert (found.samples, found.throughput, found.verdict) == (49_920, 4992, PER_RANK)
    assert "samples were counted once per rank: 49920, not 200000" in found.correction
    found = judge(row(4, "4992", "10.00", 12_480, steps=195, global_batch=256), mapping())
    assert (found.samples, found.verdict) == (49_920, CONSISTENT)
    with pytest.raises(RowFault, match="steps of 256 hold 49920"):
        judge(row(4, "10000", "10.00", 100_000, steps=195, global_batch=256), mapping())


def test_a_dropped_last_batch_is_no_fault() -> None:
    found = judge(row(4, "4992", "10.00", steps=195, global_batch=256), mapping())
    assert (found.samples, found.verdict) == (49_920, CONSISTENT)
    assert "samples = steps x global_batch: a last batch was dropped" in found.row.said
    constant = Mapping(
        title="t", source="s", throughput_is="global", columns={n: COLUMNS[n] for n in COLUMNS if n != "samples"},
        constants={"samples": 50_000.0, "global_batch": 256},
    )  # fmt: skip
    assert judge(row(4, "4992", "10.00", global_batch=256), constant).verdict == CONSISTENT
    with pytest.raises(RowFault, match=r"0\.997 times"):
        judge(row(4, "4985", "10.00"), constant)  # without a batch, 50,000 are 50,000


def test_samples_keep_the_slack_of_how_they_are_printed_beside_steps() -> None:
    """49,920 printed as 49,900 is half a thousandth off, which throughput and time alone would not explain."""
    coarse = row(4, "4992.0", "10.0000", steps=195, global_batch=256)
    coarse.measures["samples"] = number("49900")
    found = judge(coarse, mapping())
    assert (found.samples, found.verdict) == (49_900, CONSISTENT)


def test_missing_pieces_are_derived_and_that_is_said() -> None:
    bare = row(4, "4992", "10.00", steps=195, nodes=2, batch_per_device=64)
    del bare.measures["samples"], bare.measures["throughput"]
    found = judge(bare, mapping())
    assert (found.samples, found.throughput, found.reported) == (49_920, 4992, None)
    assert found.verdict == judging.COMPUTED
    assert found.row.said == [
        "ranks_per_node = world_size / nodes",
        "global_batch = batch_per_device x world_size",
        "samples = steps x global_batch",
        "throughput = samples / seconds",
    ]


@pytest.mark.parametrize("missing", ["samples", "seconds"])
def test_a_throughput_alone_is_kept_and_marked(missing: str) -> None:
    bare = row(4, "4992", "10.00")
    del bare.measures[missing]
    found = judge(bare, mapping())
    assert (found.verdict, found.throughput, found.reported) == (UNCHECKED, 4992, 4992)
    assert f"no {missing}" in found.row.said[-1]


def test_numbers_per_rank_are_added_up() -> None:
    said = Mapping(title="t", source="s", throughput_is="per_rank", samples_is="per_rank", columns=COLUMNS)
    found = judge(row(8, "625.0", "10.00", 6250), said)
    assert (found.verdict, found.samples, found.throughput, found.reported) == (CONSISTENT, 50_000, 5000, 5000)
    wrong = judge(row(8, "5000", "10.00", 6250), said)
    assert (wrong.verdict, wrong.throughput) == (PER_RANK, 5000)
    assert wrong.correction.startswith("the throughput is global already, not a rank's as throughput_is says")


@pytest.mark.parametrize(
    ("counts", "words", "why"),
    [
        ({"nodes": 3, "ranks_per_node": 2}, {}, "world_size is 8, but nodes x ranks_per_node is 3 x 2 = 6"),
        ({"global_batch": 100, "batch_per_device": 32}, {}, "global_batch is 100, but batch_per_device x world_size"),
        ({"nodes": 0}, {}, "nodes is 0, not a positive number"),
        ({"epoch": -1}, {}, "epoch is -1, less than 0"),
        ({}, {"parallel": "none"}, "parallel is none (no process group), but there are 8 ranks"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(counts: dict, words: dict, why: str) -> None:
    bad = row(8, "5000", "10.00", **counts)
    bad.words |= words
    with pytest.raises(RowFault) as refused:
        judge(bad, mapping())
    assert str(refused.value).startswith(why)
