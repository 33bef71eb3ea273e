"""Import of other people's tables: printed numbers, mapping files, checks of rows, whole files, the kept set, the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given
from hypothesis import strategies as st

from hpc_utils import paths
from hpc_utils.cli import main
from hpc_utils.records import foreign, schema
from hpc_utils.records.foreign import ForeignError, Format, Meaning, Row, RowFault, Verdict, number

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

# The size of the data set, divided by the time, times the world size.
CLASSIC = """gpus,mode,epoch_time_s,images_per_sec
1,single,41.7,1199
2,DDP,22.6,4425
4,DataParallel,18.9,10582
8,DDP,7.31,54720
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.csv").write_text(CLASSIC)
    (tmp_path / "theirs.toml").write_text(MAPPING)
    return tmp_path


@pytest.fixture
def read(desk: Path) -> Callable[..., foreign.Foreign]:
    """`read(csv, mapping)`: both written to files, then read as the set `theirs`."""

    def write_and_read(csv: str | bytes = CLASSIC, mapping: str = MAPPING, name: str = "theirs") -> foreign.Foreign:
        (desk / "theirs.csv").write_bytes(csv if isinstance(csv, bytes) else csv.encode())
        (desk / "theirs.toml").write_text(mapping)
        return foreign.read(desk / "theirs.csv", desk / "theirs.toml", name)

    return write_and_read


# Printed numbers


@given(true=st.floats(1e-3, 1e9), form=st.sampled_from(["{:.3g}", "{:.4g}", "{:.3e}", "{:.8g}"]))
def test_the_true_value_is_within_the_slack(true: float, form: str) -> None:
    plain = f"{float(form.format(true)):f}".rstrip("0").rstrip(".")  # 12300 instead of 1.23e+04
    for text in (form.format(true), plain):
        value, slack = number(text)
        assert abs(math.log(true / value)) <= slack * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("text", "half_unit"),
    [("12.34", 0.005), ("0.50", 0.005), ("12300", 50), ("12300.0", 50), ("12345", 0.5), ("100", 0.5), ("1.20e3", 5)],
)
def test_the_slack_is_half_a_unit_of_the_last_digit(text: str, half_unit: float) -> None:
    assert number(text)[1] == pytest.approx(-math.log1p(-half_unit / float(text)))


@pytest.mark.parametrize(
    ("text", "decimal", "thousands", "value"),
    [
        ("1.234,5", ",", ".", 1234.5), ("1234,5", ",", "", 1234.5), ("1\u202f234\u202f567,5", ",", " ", 1234567.5),
        ("12'345", ".", "'", 12345), ("1,5e3", ",", "", 1500), ("1.5", ",", ".", None), ("1.234,5", ",", "", None),
        ("1,5", ".", ",", None), ("12_000", ".", "", None), ("inf", ".", "", None), ("3 s", ".", "", None),
        (".", ".", "", None),
    ],
)  # fmt: skip
def test_decimal_and_thousands_marks(text: str, decimal: str, thousands: str, value: float | None) -> None:
    form = Format(decimal=decimal, thousands=thousands)
    if value is None:
        with pytest.raises(ValueError):
            number(text, form)
    else:
        assert number(text, form)[0] == value


@pytest.mark.parametrize(
    ("was", "now", "names"),
    [
        ("throughput_is", "throughput_iss", "throughput_is"),
        ("world_size =", "word_size =", "columns.word_size"),
        ('throughput_is = "global"', "", "throughput_is"),
        ('"epoch_time_s"', '{ column = "t", scale = 0 }', "columns.seconds.scale"),
        ("samples = 50000", "samples = -1", "constants.samples"),
        ("samples = 50000", "seconds = 3.0", "seconds"),
        ('world_size = "gpus"', "", "world_size"),
        ('seconds = "epoch_time_s"\nthroughput = "images_per_sec"', "", "throughput"),
        ("A. Author, a report, 2024", "\\u001b[31m", "source"),
        ("[constants]", "[format]\nthousands = '.'\n[constants]", "format"),
        ('parallel = "mode"', "", "parallel"),
        ('throughput = "images_per_sec"', 'samples = "n"', "samples"),
    ],
)
def test_a_fault_of_the_mapping_names_its_key(read: Callable, was: str, now: str, names: str) -> None:
    with pytest.raises(ForeignError, match=re.escape(names)) as refused:
        read(mapping=MAPPING.replace(was, now, 1))
    assert refused.value.exit_code == 2
    assert "theirs.toml" in str(refused.value)


# Rows

COLUMNS = {"world_size": "n", "throughput": "x", "seconds": "t", "samples": "s"}
LAYOUT = {"ranks": st.integers(2, 1024), "seconds": st.floats(0.5, 1e5)}
SAMPLES = st.integers(10**7, 10**9)  # at least 100 a second: three digits are three then, also in %g


def meaning(**more: object) -> Meaning:
    return Meaning(
        title="t", source="s", **{"throughput_is": "global", "samples_is": "global", "columns": COLUMNS} | more
    )


def judged(
    ranks: int,
    throughput: str | None,
    seconds: str | None = "10.00",
    samples: float | None = 50_000,
    mapping: Meaning | None = None,
    **more: object,
) -> Row:
    found = Row(2, {"world_size": ranks, **({"samples": samples} if samples else {}), **more})
    for name, text in (("throughput", throughput), ("seconds", seconds)):
        if text:
            found.values[name], slack = number(text)
            found.slack += slack
    foreign.judge(found, mapping or meaning())
    return found


@given(**LAYOUT, samples=SAMPLES, digits=st.integers(3, 8))
def test_the_two_common_errors_are_found_and_corrected(ranks: int, samples: int, seconds: float, digits: int) -> None:
    true = samples / seconds
    for factor, verdict in ((ranks, Verdict.PER_RANK), (1 / ranks, Verdict.ONE_RANK), (1, Verdict.CONSISTENT)):
        text = f"{factor * true:.{digits}g}"
        assume(
            sum(map(str.isdigit, text.partition("e")[0].lstrip("0."))) >= 3
        )  # %g leaves out what follows a 1 of 1.00
        found = judged(ranks, text, f"{seconds:.3f}", samples)
        assert found.verdict == verdict
        assert found.values["throughput"] == pytest.approx(true, rel=1e-3)
        assert found.reported / found.values["throughput"] == pytest.approx(factor, rel=0.01)


@given(factor=st.floats(0.01, 100), ranks=st.sampled_from([1, 2, 4, 8, 64]))
def test_any_other_factor_is_refused_with_both_numbers(factor: float, ranks: int) -> None:
    assume(all(abs(factor / known - 1) > 0.02 for known in (1, ranks, 1 / ranks)))
    with pytest.raises(RowFault, match=r"times what 50000 samples in 10 s give .5000/s."):
        judged(ranks, f"{factor * 5000:.6g}")


def test_the_tolerance_of_the_mapping_widens_the_check() -> None:
    wide = meaning(tolerance=0.03)
    assert judged(8, "4900", mapping=wide).verdict == Verdict.CONSISTENT
    assert judged(8, "39200", mapping=wide).verdict == Verdict.PER_RANK
    with pytest.raises(RowFault):
        judged(8, "4900")


def test_too_few_digits_leave_a_row_unchecked() -> None:
    found = judged(2, "12345", "1")
    assert (found.verdict, found.values["throughput"]) == (Verdict.UNCHECKED, 12345)


@pytest.mark.parametrize(
    ("throughput", "samples", "kept"),
    [
        ("4992", 50_000, 49_920),  # the last batch was dropped
        ("4990", 49_900, 49_900),  # the last batch was smaller
        ("20000", 200_000, None),  # counted on every rank
        ("1248", 12_480, None),  # one rank's
    ],
)
def test_samples_must_agree_with_steps_and_batch(throughput: str, samples: int, kept: int | None) -> None:
    def check() -> Row:
        return judged(4, throughput, "10.00", samples, steps=195, global_batch=256)

    if kept is None:
        with pytest.raises(RowFault, match="195 steps of 256 hold 49920"):
            check()
    else:
        assert (check().values["samples"], check().verdict) == (kept, Verdict.CONSISTENT)


def test_a_constant_data_set_may_lose_its_last_batch() -> None:
    columns = {name: theirs for name, theirs in COLUMNS.items() if name != "samples"}
    constant = meaning(columns=columns, constants={"samples": 50_000.0, "global_batch": 256})
    assert judged(4, "4992", mapping=constant, global_batch=256).verdict == Verdict.CONSISTENT
    with pytest.raises(RowFault, match=r"0\.997 times"):
        judged(4, "4985", mapping=constant)


def test_missing_numbers_are_derived_and_listed() -> None:
    found = judged(4, None, "10.00", None, steps=195, nodes=2, batch_per_device=64)
    assert (found.values["samples"], found.values["throughput"], found.reported) == (49_920, 4992, None)
    assert found.verdict == Verdict.COMPUTED
    assert judged(1, None, "10.00", None, steps=195, global_batch=1).values["samples"] == 195
    assert found.derived == [
        "ranks_per_node = world_size / nodes",
        "global_batch = batch_per_device x world_size",
        "samples = steps x global_batch",
    ]


@pytest.mark.parametrize(("seconds", "samples"), [(None, 50_000), ("10.00", None)])
def test_a_throughput_alone_is_kept_unchecked(seconds: str | None, samples: float | None) -> None:
    found = judged(4, "4992", seconds, samples)
    assert (found.verdict, found.values["throughput"], found.reported) == (Verdict.UNCHECKED, 4992, 4992)
    with pytest.raises(RowFault):
        judged(4, None, seconds, samples)


def test_numbers_of_one_rank_are_multiplied_by_the_world_size() -> None:
    per_rank = meaning(throughput_is="per_rank", samples_is="per_rank")
    found = judged(8, "625.0", "10.00", 6250, per_rank)
    assert (found.verdict, found.values["samples"], found.values["throughput"]) == (Verdict.CONSISTENT, 50_000, 5000)
    assert found.reported == 5000
    assert judged(8, "5000", "10.00", 6250, per_rank).verdict == Verdict.PER_RANK


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"nodes": 3, "ranks_per_node": 2}, "world_size is 8, but nodes x ranks_per_node is 3 x 2"),
        ({"global_batch": 100, "batch_per_device": 32}, "global_batch is 100"),
        ({"parallel": "none"}, "parallel is none"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(more: dict, why: str) -> None:
    with pytest.raises(RowFault, match=why):
        judged(8, "5000", **more)


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
GERMAN = """Knoten;GPUs;Epoche;Zeit [ms];Durchsatz je GPU;Genauigkeit;Genauigkeit der Zahlen
1;2;1;22.600,0;1.106,2;60,9;einfach
1;2;2;22.500,0;1.111,1;70,8;einfach
2;4;1;12.400,0;1.008,1;61,0;einfach
2;4;2;12.500,0;4.000,0;;einfach
1;2;1;22.700,0;1.101,3;60,9;einfach
"""


def test_a_whole_file_of_samples_counted_once_per_rank(read: Callable) -> None:
    found = read()
    assert list(found.runs.columns) == [*schema.names(schema.RUNS), *schema.names(schema.FOREIGN)]
    assert not found.refused
    assert found.runs.world_size.tolist() == [1, 2, 4, 8]
    assert found.runs.verdict.tolist() == ["consistent"] + ["counted once per rank"] * 3
    assert found.runs.throughput.round().tolist() == [1199, 2212, 2646, 6840]
    assert found.runs.reported_throughput.tolist() == pytest.approx([1199, 4425, 10582, 54720])
    assert found.runs.factor.round(3).tolist() == [1, 2, 4, 8]
    assert found.runs.batch_per_device.tolist() == [256, 128, 64, 32]
    assert found.runs.comparable.tolist() == [True, True, False, True]
    assert found.runs.parallel.tolist() == ["none", "ddp", "DataParallel", "ddp"]
    assert found.runs.correction.notna().tolist() == [False, True, True, True]
    assert found.runs.derived.tolist() == ["batch_per_device = global_batch / world_size"] * 4
    assert set(found.runs.hardware_id) == {"foreign:theirs"}, "never pooled with our own measurements"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_decimal_commas_milliseconds_and_epochs_as_rows(read: Callable, encoding: str) -> None:
    found = read(GERMAN.encode(encoding), GERMAN_MAPPING + f'encoding = "{encoding}"\n')
    assert found.refused.keys() == {6} and "line 2" in found.refused[6], "an epoch that occurs twice"
    two, four = found.runs.set_index("world_size").loc[[2, 4]].itertuples()
    assert (two.epochs, two.samples, two.lines, two.precision, two.ranks_per_node) == (2, 100_000, "2-3", "fp32", 2)
    assert two.seconds == pytest.approx(45.1)
    assert two.throughput == pytest.approx(100_000 / 45.1)
    assert two.test_accuracy == pytest.approx(0.708), "the last epoch's"
    assert four.test_accuracy == pytest.approx(0.61), "the last that was evaluated"
    assert (two.verdict, four.verdict) == ("consistent", "counted once per rank"), "one epoch was corrected"


def test_a_second_row_of_a_configuration_is_a_repeat_only_if_a_column_says_so(read: Callable) -> None:
    csv = "gpus,mode,epoch_time_s,images_per_sec,n\n1,single,41.7,1199,1\n1,single,30.0,1667,2\n"
    found = read(csv)
    assert found.refused.keys() == {3} and found.runs.throughput.round().tolist() == [1199]
    counted = read(csv, MAPPING.replace('world_size = "gpus"', 'world_size = "gpus"\nrepeat = "n"'))
    assert not counted.refused and counted.runs.repeat.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("16,DDP,OOM,1", "epoch_time_s"),
        ("1.5,DDP,4.90,1", "world_size"),
        (",DDP,4.90,1", "world_size"),
        ("16,DDP,-4.90,1", "seconds"),
        ("16,Ddp,4.90,1", "parallel"),
        ("16,DDP", "cut off"),
        ("16,DDP,4.90,10204,5", "fields"),
        ("16,DDP,4.90,100000", "throughput 100000/s is 9.8 times"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_and_the_others_are_kept(read: Callable, line: str, names: str) -> None:
    found = read(f"{CLASSIC}{line}\n")
    assert found.refused.keys() == {6}
    assert names in found.refused[6]
    assert len(found.runs) == 4


@pytest.mark.parametrize(
    ("csv", "names"),
    [
        (CLASSIC.replace("epoch_time_s", "epoch_time", 1), "columns.seconds"),
        (CLASSIC.replace("images_per_sec", "gpus", 1).replace("_s,gpus", "_s,mode", 1), "2 columns"),
        ("", "columns"),
        (b"\xff\xfe", "format"),
        (CLASSIC + '8,"DD', "cut off"),
        ("gpus,mode,epoch_time_s,images_per_sec\n2,DDP,no,1\n", "none of its 1 rows can be used; line 2"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(read: Callable, csv: str | bytes, names: str) -> None:
    with pytest.raises(ForeignError, match=names):
        read(csv)


# The kept set


def test_a_set_is_kept_with_its_files_and_reads_back(read: Callable, results: Path) -> None:
    assert foreign.load().empty
    found = read(CLASSIC + "16,DDP,OOM,1\n")
    folder = foreign.keep(found, {"digest": "d", "commit": None, "dirty": None})
    assert folder == results / "foreign/theirs"
    assert (folder / "source.csv").read_text() == CLASSIC + "16,DDP,OOM,1\n"
    assert (folder / "mapping.toml").read_text() == MAPPING
    record = json.loads((folder / "provenance.json").read_text())
    assert record["refused"].keys() == {"line 6"}
    assert (record["imported_by"]["digest"], record["title"]) == ("d", "ResNet-18 on eight GPUs")
    again = foreign.load()
    same = [name for name in found.runs if found.runs[name].notna().any()]
    assert again[same].equals(found.runs[same].astype(again[same].dtypes))
    assert list(again.columns) == list(found.runs.columns)


def test_a_new_mapping_replaces_a_set_but_another_file_does_not(read: Callable) -> None:
    foreign.keep(read(), {})
    foreign.keep(read(mapping=MAPPING.replace("256", "512")), {})
    foreign.keep(read(name="another"), {})
    runs = foreign.load()
    assert runs.groupby("foreign").global_batch.unique().map(list).to_dict() == {"another": [256], "theirs": [512]}
    with pytest.raises(ForeignError, match="holds another file's results"):
        foreign.keep(read(CLASSIC.replace("1199", "1200")), {})


@pytest.mark.parametrize("file", ["source.csv", "mapping.toml", "runs.csv", "provenance.json"])
def test_a_set_that_was_edited_is_refused(read: Callable, file: str) -> None:
    path = foreign.keep(read(), {}) / file
    path.write_text(path.read_text().replace("1199", "9911") + " " if file != "provenance.json" else "{")
    with pytest.raises(ForeignError):
        foreign.load()


def hpc(*arguments: str) -> Result:
    return CliRunner().invoke(main, ("import", *arguments))


def test_the_example_of_the_results_page(desk: Path) -> None:
    page = (paths.root() / "results/README.md").read_text()
    blocks = dict(re.findall(r"^```(csv|toml|sh)\n(.*?)^```", page, re.M | re.S))
    (desk / "theirs.csv").write_text(blocks["csv"])
    (desk / "theirs.toml").write_text(blocks["toml"])
    done = hpc(*blocks["sh"].split()[2:])
    assert done.exit_code == 1
    assert "refused line 6: throughput 61000/s is 5.978 times" in done.stderr
    assert foreign.load().verdict.tolist() == ["consistent"] + 3 * ["counted once per rank"]


def test_both_throughputs_and_efficiencies_are_printed(desk: Path) -> None:
    done = hpc("theirs.csv", "--map", "theirs.toml", "--as", "paper")
    assert done.exit_code == 0, done.output
    (eight,) = [line for line in done.output.splitlines() if "54,720" in line]
    for shown in ("strong", "256", " 8 ", "54,720.0", "6,839.9", "570.5%", "71.3%", "counted once per rank"):
        assert shown in eight
    assert "not comparable" in done.output


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("none.csv", "--map", "theirs.toml"), "none.csv"),
        (("theirs.csv", "--map", "none.toml"), "none.toml"),
        (("theirs.csv",), "--map"),
        (("theirs.csv", "--map", "theirs.toml", "--as", "../../x"), "../../x"),
    ],
)
def test_a_fault_of_the_request_exits_with_2(
    desk: Path, results: Path, arguments: tuple[str, ...], names: str
) -> None:
    done = hpc(*arguments)
    assert done.exit_code == 2
    assert names in done.stderr and not results.exists()


def test_a_drafted_mapping_names_the_columns_and_must_be_filled_in(desk: Path) -> None:
    (desk / "theirs.toml").unlink()
    done = hpc("theirs.csv", "--draft", "--as", "others")
    assert done.exit_code == 0 and "--as others" in done.stdout, "the command that follows"
    assert "gpus,mode,epoch_time_s,images_per_sec" in (desk / "theirs.toml").read_text()
    done = hpc("theirs.csv", "--map", "theirs.toml")
    assert done.exit_code == 2 and "title" in done.stderr
    assert hpc("theirs.csv", "--draft").exit_code == 2, "an existing mapping is kept"
