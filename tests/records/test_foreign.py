"""Other people's tables: numbers as printed, mappings, rows judged, whole files, the kept folder, and the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hpc_utils import paths
from hpc_utils.cli import main
from hpc_utils.records import foreign, schema
from hpc_utils.records.foreign import ForeignError, Mapping, Printed, Row, RowFault, Verdict, judge, number

MAPPING = """
title = "ResNet-18 on eight GPUs"
source = "A. Author, a report, 2024"
throughput_is = "global"

[columns]
parallel = "mode"
world_size = "gpus"
seconds = "epoch_time_s"
throughput = "images_per_sec"

[constants]
workload = "resnet18"
samples = 50000
global_batch = 256

[values.parallel]
single = "none"
DDP = "ddp"
DataParallel = "not comparable"
"""

# As such tables are made: the data set's size, divided by the time, times the world size once more.
CLASSIC = """gpus,mode,epoch_time_s,images_per_sec
1,single,41.7,1199
1,DDP,42.3,1182
2,DDP,22.6,4425
4,DDP,12.4,16129
4,DataParallel,18.9,10582
8,DDP,7.31,54720
"""


@pytest.fixture
def read(tmp_path: Path, results: Path) -> Callable[..., foreign.Foreign]:
    """`read(csv, mapping)`: both written to files, then read as the set `theirs`."""

    def write_and_read(csv: str | bytes, mapping: str = MAPPING, name: str = "theirs") -> foreign.Foreign:
        path = tmp_path / "theirs.csv"
        path.write_bytes(csv if isinstance(csv, bytes) else csv.encode())
        (tmp_path / "theirs.toml").write_text(mapping)
        return foreign.read(path, tmp_path / "theirs.toml", name)

    return write_and_read


# Printed numbers


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


# The mapping file


def fault(tmp_path: Path, text: str) -> str:
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(ForeignError) as refused:
        foreign.read_mapping(path)
    assert refused.value.exit_code == 2
    return str(refused.value).replace(str(path), "m.toml")


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("throughput_is", "throughput_iss", "m.toml: unknown key 'throughput_iss': did you mean throughput_is?"),
        ("world_size =", "word_size =", "m.toml: columns: unknown key 'word_size': did you mean world_size?"),
        ("[values.parallel]", "[values.paralel]", "values: unknown key 'paralel': did you mean parallel?"),
        ('"global"', '"all"', "throughput_is: input should be 'global' or 'per_rank', not 'all'"),
        ('throughput_is = "global"', "", "throughput_is: throughput is read, so"),
        ('seconds = "epoch_time_s"', "seconds = 3", "columns.seconds: expected a column's name or { column ="),
        ('"epoch_time_s"', '{ column = "t", scale = 0 }', "columns.seconds.scale: input should be greater than 0"),
        ('"epoch_time_s"', '{ column = "t", factor = 2 }', "columns.seconds: unknown key 'factor'"),
        ("samples = 50000", 'samples = "50000"', "constants.samples: input should be a valid number, not '50000'"),
        ("samples = 50000", "samples = -1", "constants.samples: input should be greater than 0"),
        ("samples = 50000", "seconds = 3.0", "seconds is in [columns] and in [constants]"),
        ('throughput = "images_per_sec"', 'samples = "n"', "samples is in [columns] and in [constants]"),
        ('world_size = "gpus"', "", "world_size is needed, or nodes and ranks_per_node"),
        ("A. Author, a report, 2024", "FILL IN: who", "m.toml: source: this is still to be filled in"),
        ("A. Author, a report, 2024", "\\u001b[31m", "m.toml: source: expected one line of text"),
        ('mode"', 'mode"\nprecision = { column = "p", scale = 2 }', "columns.precision: words have no scale"),
        ("[constants]", "[format]\ndecimal = ';'\n[constants]", "format.decimal: input should be '.' or ','"),
        ("[constants]", "[format]\ndecimal = ','\nthousands = ','\n[constants]", "are both ','"),
        ('parallel = "mode"', "", "values.parallel: there is no columns.parallel"),
        ("[columns]", "tolerance = 0.5\n[columns]", "tolerance: input should be less than or equal to 0.1"),
        ("[columns]", "[columns", "m.toml: not TOML"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed(tmp_path: Path, was: str, now: str, says: str) -> None:
    assert was in MAPPING
    assert says in fault(tmp_path, MAPPING.replace(was, now, 1))


def test_samples_of_a_column_are_global_or_a_ranks_and_nobody_guesses(tmp_path: Path) -> None:
    text = MAPPING.replace("samples = 50000\n", "").replace('"gpus"', '"gpus"\nsamples = "n"', 1)
    assert "samples_is: samples is read, so" in fault(tmp_path, text)


def test_without_a_mapping_the_way_to_one_is_said(tmp_path: Path) -> None:
    with pytest.raises(ForeignError, match=r"none\.toml: no such mapping file; `hpc import --draft FILE.csv`"):
        foreign.read_mapping(tmp_path / "none.toml")


# Rows

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
    assert found.verdict == Verdict.PER_RANK
    assert "once per rank" in found.correction
    assert found.throughput == pytest.approx(samples / seconds, rel=1e-3)
    assert found.reported / found.throughput == pytest.approx(ranks, rel=0.01)


@given(ranks=st.integers(2, 1024), samples=SAMPLES, seconds=TIMES)
def test_one_ranks_samples_taken_for_all_are_found(ranks: int, samples: int, seconds: float) -> None:
    text = f"{samples / seconds / ranks:.3g}"
    assume(sum(map(str.isdigit, text.partition("e")[0].lstrip("0."))) >= 3)  # %g leaves out what follows a 1 of 1.00
    found = judge(row(ranks, text, f"{seconds:.3f}", samples), mapping())
    assert (found.verdict, found.throughput) == (Verdict.ONE_RANK, pytest.approx(samples / seconds, rel=1e-3))


@given(ranks=st.integers(1, 1024), samples=SAMPLES, seconds=TIMES, digits=st.integers(3, 17))
def test_what_is_right_stays(ranks: int, samples: int, seconds: float, digits: int) -> None:
    found = judge(row(ranks, f"{samples / seconds:.{digits}g}", f"{seconds:.6f}", samples), mapping())
    assert (found.verdict, found.correction) == (Verdict.CONSISTENT, "")


@given(factor=st.floats(1e-4, 1e4), seconds=TIMES)
def test_one_rank_is_never_corrected(factor: float, seconds: float) -> None:
    try:
        found = judge(row(1, f"{factor * 50_000 / seconds:.6g}", f"{seconds:.3f}"), mapping())
    except RowFault as fault:
        assert "1 rank does not explain" in str(fault)
    else:
        assert found.verdict in (Verdict.CONSISTENT, Verdict.UNCHECKED)  # 2e-06 is printed too coarsely to tell
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
        (
            "4900",
            {},
            "off by 2.00%, more than the printed digits allow; were the two timed apart? (tolerance = 0.01)",
        ),
    ],
)
def test_a_hint_where_the_factor_looks_like_something(throughput: str, counts: dict, hint: str) -> None:
    with pytest.raises(RowFault) as refused:
        judge(row(8, throughput, "10.00", **counts), mapping())
    assert str(refused.value).endswith(hint)


def test_what_the_mapping_allows_is_no_fault() -> None:
    assert judge(row(8, "4900", "10.00"), mapping(tolerance=0.03)).verdict == Verdict.CONSISTENT
    assert judge(row(8, "39200", "10.00"), mapping(tolerance=0.03)).verdict == Verdict.PER_RANK


def test_too_few_digits_decide_nothing() -> None:
    found = judge(row(2, "12345", "1"), mapping())
    assert (found.verdict, found.throughput) == (Verdict.UNCHECKED, 12345)
    assert "too few digits" in found.row.derived[-1]


def test_steps_and_batch_know_better_than_a_count_taken_on_every_rank() -> None:
    """The identity holds, since throughput was computed from the false count; as it is for our own records."""
    found = judge(row(4, "20000", "10.00", 200_000, steps=195, global_batch=256), mapping())
    assert (found.samples, found.throughput, found.verdict) == (49_920, 4992, Verdict.PER_RANK)
    assert "samples were counted once per rank: 49920, not 200000" in found.correction
    found = judge(row(4, "4992", "10.00", 12_480, steps=195, global_batch=256), mapping())
    assert (found.samples, found.verdict) == (49_920, Verdict.CONSISTENT)
    with pytest.raises(RowFault, match="steps of 256 hold 49920"):
        judge(row(4, "10000", "10.00", 100_000, steps=195, global_batch=256), mapping())


def test_a_dropped_last_batch_is_no_fault() -> None:
    found = judge(row(4, "4992", "10.00", steps=195, global_batch=256), mapping())
    assert (found.samples, found.verdict) == (49_920, Verdict.CONSISTENT)
    assert "samples = steps x global_batch: a last batch was dropped" in found.row.derived
    constant = Mapping(
        title="t", source="s", throughput_is="global", columns={n: COLUMNS[n] for n in COLUMNS if n != "samples"},
        constants={"samples": 50_000.0, "global_batch": 256},
    )  # fmt: skip
    assert judge(row(4, "4992", "10.00", global_batch=256), constant).verdict == Verdict.CONSISTENT
    with pytest.raises(RowFault, match=r"0\.997 times"):
        judge(row(4, "4985", "10.00"), constant)  # without a batch, 50,000 are 50,000


def test_samples_keep_the_slack_of_how_they_are_printed_beside_steps() -> None:
    """49,920 printed as 49,900 is half a thousandth off, which throughput and time alone would not explain."""
    coarse = row(4, "4992.0", "10.0000", steps=195, global_batch=256)
    coarse.measures["samples"] = number("49900")
    found = judge(coarse, mapping())
    assert (found.samples, found.verdict) == (49_900, Verdict.CONSISTENT)


def test_missing_pieces_are_derived_and_that_is_said() -> None:
    bare = row(4, "4992", "10.00", steps=195, nodes=2, batch_per_device=64)
    del bare.measures["samples"], bare.measures["throughput"]
    found = judge(bare, mapping())
    assert (found.samples, found.throughput, found.reported) == (49_920, 4992, None)
    assert found.verdict == Verdict.COMPUTED
    assert found.row.derived == [
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
    assert (found.verdict, found.throughput, found.reported) == (Verdict.UNCHECKED, 4992, 4992)
    assert f"no {missing}" in found.row.derived[-1]


def test_numbers_per_rank_are_added_up() -> None:
    said = Mapping(title="t", source="s", throughput_is="per_rank", samples_is="per_rank", columns=COLUMNS)
    found = judge(row(8, "625.0", "10.00", 6250), said)
    assert (found.verdict, found.samples, found.throughput, found.reported) == (
        Verdict.CONSISTENT,
        50_000,
        5000,
        5000,
    )
    wrong = judge(row(8, "5000", "10.00", 6250), said)
    assert (wrong.verdict, wrong.throughput) == (Verdict.PER_RANK, 5000)
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


# Whole files

GERMAN_MAPPING = """
title = "ResNet-18"
source = "Bericht, 2023"
throughput_is = "per_rank"

[columns]
world_size = "GPUs"
nodes = "Knoten"
epoch = "Epoche"
seconds = { column = "Zeit [ms]", scale = 0.001 }
throughput = "Durchsatz je GPU"
test_accuracy = { column = "Genauigkeit", scale = 0.01 }
precision = "Genauigkeit der Zahlen"

[constants]
samples = 50000

[values.precision]
einfach = "fp32"

[format]
delimiter = ";"
decimal = ","
thousands = "."
"""
GERMAN = """\ufeffKnoten;GPUs;Epoche;Zeit [ms];Durchsatz je GPU;Genauigkeit;Genauigkeit der Zahlen
1;1;1;41.700,5;1.199,0;61,5;einfach
1;1;2;41.650,1;1.200,5;71,2;einfach
1;2;1;22.600,0;1.106,2;60,9;einfach
1;2;2;22.500,0;1.111,1;70,8;einfach
2;4;1;12.400,0;1.008,1;61,0;einfach
2;4;2;12.500,0;1.000,0;;einfach
"""


def test_the_classical_error_in_a_whole_file(read: Callable) -> None:
    found = read(CLASSIC)
    assert list(found.runs.columns) == [*schema.names(schema.RUNS), *schema.names(schema.FOREIGN)]
    assert not found.refused
    assert found.runs.world_size.tolist() == [1, 1, 2, 4, 4, 8]
    assert found.runs.verdict.tolist() == ["consistent"] * 2 + ["counted once per rank"] * 4
    assert found.runs.throughput.round().tolist() == [1199, 1182, 2212, 4032, 2646, 6840]
    assert found.runs.reported_throughput.tolist() == [1199, 1182, 4425, 16129, 10582, 54720]
    assert found.runs.factor.round(3).tolist() == [1, 1, 2, 4, 4, 8]
    assert found.runs.batch_per_device.tolist() == [256, 256, 128, 64, 64, 32]
    assert found.runs.comparable.tolist() == [True, True, True, True, False, True]
    assert found.runs.parallel.tolist() == ["none", "ddp", "ddp", "ddp", "DataParallel", "ddp"]
    assert set(found.runs.hardware_id) == {"foreign:theirs"}, "never pooled with what was measured here"


def test_decimal_commas_milliseconds_and_epochs_as_rows(read: Callable) -> None:
    found = read(GERMAN, GERMAN_MAPPING)
    assert not found.refused
    assert set(found.runs.verdict) == {"consistent"}
    two = found.runs.set_index("world_size").loc[2]
    assert (two.epochs, two.samples, two.lines, two.precision, two.ranks_per_node) == (2, 100_000, "4-5", "fp32", 2)
    assert two.seconds == pytest.approx(45.1)
    assert two.throughput == pytest.approx(100_000 / 45.1)
    assert two.test_accuracy == pytest.approx(0.708), "the last epoch's"
    assert found.runs.set_index("world_size").test_accuracy[4] == pytest.approx(0.61), "the last that was evaluated"


def test_as_utf_16_it_is_the_same(read: Callable) -> None:
    whole = read(GERMAN, GERMAN_MAPPING)
    text = GERMAN.removeprefix("\ufeff")
    with pytest.raises(ForeignError, match=r"not utf-8 .* set \[format\] encoding"):
        read(text.encode("utf-16"), GERMAN_MAPPING)
    again = read(text.encode("utf-16"), GERMAN_MAPPING.replace("delimiter", 'encoding = "utf-16"\ndelimiter'))
    assert again.runs.equals(whole.runs)
    with pytest.raises(ForeignError, match=r"format.encoding: 'zip' is no encoding of text"):
        read(text, GERMAN_MAPPING.replace("delimiter", 'encoding = "zip"\ndelimiter'))


def test_one_epoch_of_a_run_may_be_wrong(read: Callable) -> None:
    text = GERMAN.replace("22.500,0;1.111,1", "22.500,0;2.222,2")
    run = read(text, GERMAN_MAPPING).runs.set_index("world_size").loc[2]
    assert run.verdict == "counted once per rank"
    assert run.throughput == pytest.approx(100_000 / 45.1)
    assert run.factor == pytest.approx(1.5, rel=0.01)
    assert "(in 1 of 2 epochs)" in run.correction


def test_an_epoch_that_is_there_twice_is_refused(read: Callable) -> None:
    found = read(GERMAN + "1;2;1;22.700,0;1.101,3;60,9;einfach\n", GERMAN_MAPPING)
    assert found.refused.keys() == {8} and found.refused[8].startswith("epoch 1 of this run is on line 4 already")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("16,DDP,OOM,1", "column 'epoch_time_s' (seconds): 'OOM' is not a number"),
        ("16,DDP,4.9s,1", "column 'epoch_time_s' (seconds): '4.9s' is not a number with the decimal mark '.'"),
        ("=2+14,DDP,4.90,1", "column 'gpus' (world_size): '=2+14' is not a number"),
        ("1.5,DDP,4.90,1", "column 'gpus' (world_size): '1.5' is not a whole number"),
        ("1e300,DDP,4.90,1", "column 'gpus' (world_size): '1e300' is not a whole number"),
        (",DDP,4.90,1", "world_size is missing"),
        ("16,DDP,-4.90,1", "seconds is -4.9, not a positive number"),
        (
            "16,Ddp,4.90,1",
            "parallel is 'Ddp', which is none of none, ddp, zero1, fsdp: translate it in [values.parallel]",
        ),
        ("16,\"=cmd|' /C calc'!A0\",4.90,1", "parallel is \"=cmd|' /C calc'!A0\", which is none of"),
        ("16,DDP", "2 fields, but the header has 4: is the file cut off?"),
        ("16,DDP,4.90,10204,5", "5 fields, but the header has 4"),
        ("16,DDP,4.90,100000", "throughput 100000/s is 9.8 times what 50000 samples in 4.9 s give (10204.1/s)"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_the_others_are_kept(read: Callable, line: str, why: str) -> None:
    found = read(f"{CLASSIC}{line}\n\n16,DDP,4.90,10204\n")
    assert found.refused.keys() == {8}
    assert found.refused[8].startswith(why)
    assert found.runs.world_size.tolist()[-1] == 16
    assert len(found.runs) == 7


@pytest.mark.parametrize("cell", ["=HYPERLINK(A1)", "+1", "@SUM(A1)", "-2", "\x1b[31mred", "two\nlines"])
def test_formulas_and_escapes_in_words_reach_neither_spreadsheet_nor_terminal(read: Callable, cell: str) -> None:
    text = CLASSIC.replace("gpus", "gpus,gpu_name", 1).replace("\n1,", "\n1,A100,").replace("\n2,", f'\n2,"{cell}",')
    text = text.replace("\n4,", "\n4,A100,").replace("\n8,", "\n8,A100,")
    found = read(text, MAPPING.replace("[columns]", '[columns]\ndevice_name = "gpu_name"'))
    ((_, why),) = found.refused.items()
    assert "a formula or no plain text" in why
    assert why.isprintable()
    assert set(found.runs.device_name) == {"A100"}


def test_a_file_cut_off_within_quotes_keeps_what_came_before(read: Callable) -> None:
    found = read(CLASSIC + '8,"DD')
    assert list(found.refused) == [8]
    assert "is the file cut off?" in found.refused[8]
    assert len(found.runs) == 6


@pytest.mark.parametrize(
    ("csv", "says"),
    [
        (CLASSIC.replace("epoch_time_s", "epoch_time", 1), "no column 'epoch_time_s': did you mean epoch_time?"),
        (CLASSIC.replace(",", ";"), "is the delimiter ';'? ([format] delimiter)"),
        (
            CLASSIC.replace("images_per_sec", "gpus", 1).replace("_s,gpus", "_s,mode", 1),
            "two columns are called 'mode'",
        ),
        (CLASSIC.replace("mode", '"mo\x1bde"', 1), "the name of column 2, 'mo\\x1bde', is not one line of text"),
        ("", "empty; its first line should name the columns"),
        ("gpus,mode,epoch_time_s,images_per_sec\n2,DDP,no,1\n", "none of its 1 rows can be used; line 2: column"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(read: Callable, csv: str, says: str) -> None:
    with pytest.raises(ForeignError) as refused:
        read(csv)
    assert says in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_row_without_a_time_is_kept_unchecked(read: Callable) -> None:
    run = read(CLASSIC + "16,DDP,NA,10204\n").runs.iloc[-1]
    assert (run.verdict, run.throughput, run.reported_throughput) == ("throughput only, unchecked", 10204, 10204)
    assert "no seconds" in run.derived


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    runs=st.lists(
        st.tuples(st.integers(1, 1024), st.floats(1, 1e5), st.integers(10**7, 10**9)), min_size=1, max_size=5
    ),
    delimiter=st.sampled_from(",;\t|"),
    decimal=st.sampled_from(".,"),
    mark=st.sampled_from(["", "\ufeff"]),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_true_numbers_stay_however_the_file_is_written(
    read: Callable, runs, delimiter, decimal, mark, ending
) -> None:
    def cell(value: object) -> str:
        text = str(value).replace(".", decimal)
        return f'"{text}"' if delimiter in text else text

    rows = [(n, f"{seconds:.4f}", samples, f"{samples / seconds:.7g}") for n, seconds, samples in runs]
    lines = [delimiter.join(map(cell, row)) for row in [("n", "t", "s", "x"), *rows]]
    found = read(
        mark + ending.join(lines),
        f"""
        title = "t"
        source = "s"
        throughput_is = "global"
        samples_is = "global"
        columns = {{ world_size = "n", seconds = "t", samples = "s", throughput = "x" }}
        format = {{ delimiter = {json.dumps(delimiter)}, decimal = "{decimal}" }}
        """,
    )
    assert not found.refused
    assert set(found.runs.verdict) == {"consistent"}
    assert found.runs.world_size.tolist() == [n for n, *_ in runs]
    assert found.runs.samples.tolist() == [samples for *_, samples in runs]
    assert found.runs.seconds.tolist() == [float(f"{seconds:.4f}") for _, seconds, _ in runs]


# The folder


def test_what_is_kept_is_what_was_given_and_reads_back(read: Callable, results: Path) -> None:
    found = read(CLASSIC + "16,DDP,OOM,1\n")
    folder = foreign.keep(found, {"digest": "d", "commit": None, "dirty": None})
    assert folder == results / "foreign/theirs"
    assert (folder / "source.csv").read_text() == CLASSIC + "16,DDP,OOM,1\n"
    assert (folder / "mapping.toml").read_text() == MAPPING
    record = json.loads((folder / "provenance.json").read_text())
    assert record["refused"].keys() == {"line 8"}
    assert record["imported_by"]["digest"] == "d"
    again = foreign.load("theirs")
    same = [name for name in found.runs if found.runs[name].notna().any()]
    assert again[same].equals(found.runs[same].astype(again[same].dtypes))
    assert list(again.columns) == list(found.runs.columns)


def test_all_sets_are_one_frame_and_tell_whose_they_are(read: Callable) -> None:
    assert foreign.load().empty
    for name in ("a", "b"):
        foreign.keep(read(CLASSIC, name=name), {})
    assert foreign.load().foreign.value_counts().to_dict() == {"a": 6, "b": 6}
    assert set(foreign.load("b").foreign) == {"b"}
    with pytest.raises(ForeignError, match="no foreign results 'c'"):
        foreign.load("c")


def test_a_mended_mapping_replaces_but_another_file_does_not(read: Callable) -> None:
    foreign.keep(read(CLASSIC), {})
    foreign.keep(read(CLASSIC, MAPPING.replace("256", "512")), {})
    assert set(foreign.load("theirs").global_batch) == {512}
    with pytest.raises(ForeignError, match="holds another file's results"):
        foreign.keep(read(CLASSIC.replace("1199", "1200")), {})


@pytest.mark.parametrize("file", ["source.csv", "mapping.toml", "runs.csv", "provenance.json"])
def test_a_set_that_was_edited_is_refused(read: Callable, file: str) -> None:
    path = foreign.keep(read(CLASSIC), {}) / file
    path.write_text(path.read_text().replace("1199", "9911") + " " if file != "provenance.json" else "{")
    with pytest.raises(ForeignError, match="is not as it was imported: import it again"):
        foreign.load()


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "..", "a/b", "a b", "$(id)", "é", "x" * 62, "-x"])
def test_a_name_can_lead_nowhere_else(read: Callable, name: str, results: Path) -> None:
    with pytest.raises(ForeignError, match="cannot name a result set"):
        read(CLASSIC, name=name)
    with pytest.raises(ForeignError, match="cannot name a result set"):
        foreign.load(name)
    assert not results.exists()


# The command

PAGE = paths.root() / "results/README.md"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.csv").write_text(CLASSIC)
    (tmp_path / "theirs.toml").write_text(MAPPING)
    return tmp_path


def hpc(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_example_of_the_results_page(desk: Path) -> None:
    """Its files and command as they stand there, and what the page says of the 16 GPUs."""
    blocks = dict(re.findall(r"^```(csv|toml|sh)\n(.*?)^```", PAGE.read_text(), re.M | re.S))
    (desk / "theirs.csv").write_text(blocks["csv"])
    (desk / "theirs.toml").write_text(blocks["toml"])
    done = hpc(*blocks["sh"].split()[1:])
    assert done.exit_code == 1
    assert "refused line 6: throughput 61000/s is 5.978 times" in done.stderr
    assert foreign.load("author-2024").verdict.tolist() == ["consistent"] + 3 * ["counted once per rank"]


def test_both_throughputs_and_efficiencies_are_printed(desk: Path, results: Path) -> None:
    done = hpc("import", "theirs.csv", "--map", "theirs.toml", "--as", "paper")
    assert done.exit_code == 0, done.output
    (eight,) = [line for line in done.output.splitlines() if "54,720" in line]
    for shown in ("strong", "256", " 8 ", "54,720.0", "6,839.9", "570.5%", "71.3%", "counted once per rank"):
        assert shown in eight
    assert "not comparable" in done.output
    assert "corrected, 4 of 6 runs: the global samples were counted once per rank" in done.output
    assert len(foreign.load("paper")) == 6
    assert (results / "foreign/paper/provenance.json").exists()


def test_refused_rows_are_named_and_the_rest_is_kept(desk: Path) -> None:
    (desk / "theirs.csv").write_text(CLASSIC + 30 * "16,DDP,OOM,1\n")
    done = hpc("import", "theirs.csv", "--map", "theirs.toml")
    assert done.exit_code == 1
    assert "refused line 8: column 'epoch_time_s'" in done.stderr
    assert "and 10 more" in done.stderr
    assert len(foreign.load("theirs")) == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("none.csv", "--map", "theirs.toml"), "none.csv: cannot be read: No such file"),
        (("theirs.csv", "--map", "none.toml"), "none.toml: no such mapping file"),
        (("theirs.csv",), "--map MAPPING.toml says what the columns mean"),
        (("theirs.csv", "--map", "theirs.toml", "--as", "../../x"), "'../../x' cannot name a result set"),
        ((".", "--map", "theirs.toml", "--as", "x"), "cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_read_is_exit_2(desk: Path, arguments: tuple[str, ...], says: str) -> None:
    done = hpc("import", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert "Traceback" not in done.output


def test_a_drafted_mapping_names_the_columns_and_must_be_filled_in(desk: Path) -> None:
    (desk / "theirs.toml").unlink()
    assert hpc("import", "theirs.csv", "--draft").exit_code == 0
    assert "gpus,mode,epoch_time_s,images_per_sec" in (desk / "theirs.toml").read_text()
    done = hpc("import", "theirs.csv", "--map", "theirs.toml")
    assert done.exit_code == 2 and "title: this is still to be filled in" in done.stderr
    assert hpc("import", "theirs.csv", "--draft").exit_code == 2, "what is there is not overwritten"
