"""Import of other people's tables: printed numbers, mapping files, checks of rows, whole files, the kept set, the command."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given
from hypothesis import strategies as st

from companions.imports import tables
from companions.imports.efficiency import efficiency
from companions.imports.tables import ForeignError, Format, Meaning, Verdict, number
from hpc_utils import paths
from hpc_utils.cli import main

MAPPING = """
title = "ResNet-18 on eight GPUs"
source = "A. Author, a report, 2024"

[columns]
parallel = "mode"
world_size = "gpus"
seconds = "epoch_time_s"
throughput = "images_per_sec"

[constants]
workload = "resnet18"
samples = 50000
global_batch = 256
"""

# The size of the data set, divided by the time, times the world size.
CLASSIC = """gpus,mode,epoch_time_s,images_per_sec
1,none,41.7,1199
2,ddp,22.6,4425
4,ddp,12.4,16129
8,ddp,7.31,54720
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.csv").write_text(CLASSIC)
    (tmp_path / "theirs.toml").write_text(MAPPING)
    return tmp_path


@pytest.fixture
def read(desk: Path) -> Callable[..., tuple[pd.DataFrame, dict[int, str]]]:
    """`read(csv, mapping)`: both written to files, then read as the set `theirs`."""

    def write_and_read(csv: str | bytes = CLASSIC, mapping: str = MAPPING) -> tuple[pd.DataFrame, dict[int, str]]:
        (desk / "theirs.csv").write_bytes(csv if isinstance(csv, bytes) else csv.encode())
        (desk / "theirs.toml").write_text(mapping)
        return tables.read_table(desk / "theirs.csv", desk / "theirs.toml", "theirs")

    return write_and_read


@pytest.mark.parametrize(
    ("text", "decimal", "thousands", "value"),
    [
        ("1.234,5", ",", ".", "1234.5"), ("1 234 567,5", ",", " ", "1234567.5"), ("12'345", ".", "'", "12345"),
        ("1,5e3", ",", "", "1.5e3"), ("1.5", ",", ".", None), ("1.234,5", ",", "", None), ("1,5", ".", ",", None),
        ("12_000", ".", "", None), ("inf", ".", "", None), ("3 s", ".", "", None),
    ],
)  # fmt: skip
def test_decimal_and_thousands_marks(text: str, decimal: str, thousands: str, value: str | None) -> None:
    form = Format(decimal=decimal, thousands=thousands)
    if value is None:
        with pytest.raises(ForeignError):
            number(text, form)
    else:
        assert number(text, form) == value


@pytest.mark.parametrize(
    ("was", "now", "names"),
    [
        ("source =", "sources =", "sources"),
        ('seconds = "', 'seconds = "minutes (min)"  # "', "min"),
        ("world_size =", "word_size =", "columns.word_size"),
        ("global_batch = 256", "", "global_batch"),
        ("samples = 50000", "samples = -1", "constants.samples"),
        ("A. Author, a report, 2024", "\\u001b[31m", "source"),
        ("[constants]", "[format]\nthousands = '/'\n[constants]", "format"),
    ],
)
def test_a_fault_of_the_mapping_names_its_key(read: Callable, was: str, now: str, names: str) -> None:
    with pytest.raises(ForeignError, match=re.escape(names)) as refused:
        read(mapping=MAPPING.replace(was, now, 1))
    assert refused.value.exit_code == 2


# Rows

COLUMNS = ("world_size", "throughput", "seconds", "samples", "steps", "nodes", "ranks_per_node", "global_batch")


def row(**cells: object) -> dict:
    """The values of a row; by default 50,000 samples in 10 s on 8 ranks."""
    given = {"world_size": 8, "seconds": 10.0, "samples": 50_000, "global_batch": 256} | cells
    per_rank = given.pop("throughput_is", "global")
    columns = {name: name for name in given}
    meaning = Meaning(title="t", source="s", throughput_is=per_rank, columns=columns)
    return tables.read_row({name: str(cell or "") for name, cell in given.items()}, meaning)


@given(ranks=st.integers(2, 1024), seconds=st.floats(0.5, 1e5), samples=st.integers(10**7, 10**9))
def test_the_two_common_errors_are_corrected(ranks: int, samples: int, seconds: float) -> None:
    seconds = round(seconds, 3)
    true = samples / seconds
    for factor, verdict in ((ranks, Verdict.PER_RANK), (1 / ranks, Verdict.ONE_RANK), (1, Verdict.CONSISTENT)):
        values = row(world_size=ranks, throughput=f"{factor * true:.4g}", seconds=seconds, samples=samples)
        assert values["verdict"] == verdict
        assert values["throughput"] == pytest.approx(true)
        assert values["reported_throughput"] == pytest.approx(factor * true, rel=1e-3)


@given(factor=st.floats(0.01, 100), ranks=st.sampled_from([1, 2, 4, 8, 64]))
def test_any_other_factor_is_refused_with_both_numbers(factor: float, ranks: int) -> None:
    assume(all(abs(factor / known - 1) > 0.02 for known in (1, ranks, 1 / ranks)))
    with pytest.raises(ForeignError, match=r"times what 50000 samples in 10 s give .5000/s."):
        row(world_size=ranks, throughput=f"{factor * 5000:.6g}")


@pytest.mark.parametrize("samples", [50_000, 200_000, 12_480])
def test_samples_must_agree_with_steps_and_batch(samples: int) -> None:
    assert row(steps=195, samples=None)["samples"] == 49_920
    assert row(steps=195, samples=49_900)["samples"] == 49_900, "the last batch was smaller"
    with pytest.raises(ForeignError, match="195 steps of 256 hold 49920"):
        row(steps=195, samples=samples)


def test_missing_numbers_are_derived() -> None:
    values = row(world_size=None, nodes=2, ranks_per_node=4, global_batch=None, batch_per_device=64)
    assert (values["world_size"], values["global_batch"], values["throughput"]) == (8, 512, 5000)
    assert (values["verdict"], values["reported_throughput"]) == (Verdict.COMPUTED, None)
    assert row()["batch_per_device"] == 32


@pytest.mark.parametrize("missing", ["seconds", "samples"])
def test_a_throughput_alone_is_kept_unchecked(missing: str) -> None:
    values = row(throughput=4992, **{missing: None})
    assert (values["verdict"], values["throughput"]) == (Verdict.UNCHECKED, 4992)
    with pytest.raises(ForeignError):
        row(**{missing: None})


def test_the_throughput_of_one_rank_is_multiplied_by_the_world_size() -> None:
    assert row(throughput=625, throughput_is="per_rank")["verdict"] == Verdict.CONSISTENT
    assert row(throughput=5000, throughput_is="per_rank")["verdict"] == Verdict.PER_RANK


@pytest.mark.parametrize(
    ("cells", "fault"),
    [
        ({"nodes": 3, "ranks_per_node": 2}, "world_size is 8, but nodes x ranks_per_node is 6"),
        ({"global_batch": 100, "batch_per_device": 32}, "global_batch is 100"),
        ({"parallel": "none"}, "parallel is none"),
        ({"test_accuracy": 93}, "test_accuracy"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(cells: dict, fault: str) -> None:
    with pytest.raises(ForeignError, match=fault):
        row(throughput=5000, **cells)


# Whole files


def test_a_file_of_samples_counted_once_per_rank(read: Callable) -> None:
    runs, refused = read()
    assert list(runs.columns) == tables.COLUMNS
    assert not refused and runs.world_size.tolist() == [1, 2, 4, 8]
    assert runs.verdict.tolist() == ["consistent"] + ["counted once per rank"] * 3
    assert runs.throughput.round().tolist() == [1199, 2212, 4032, 6840]
    assert runs.reported_throughput.tolist() == [1199, 4425, 16129, 54720]
    assert set(runs.hardware_id) == {"foreign:theirs"}, "never pooled with our own measurements"


def test_an_excel_export_needs_its_format_and_is_refused_without_it(read: Callable) -> None:
    csv = "gpus;mode;epoch_time_s;images_per_sec\r\n1;none;41,7;1.199\r\n2;ddp;22,6;2.212\r\n"
    form = '[format]\ndelimiter = ";"\n'
    with pytest.raises(ForeignError, match=r"no column .* set `delimiter`"):
        read(csv)
    with pytest.raises(ForeignError, match="'41,7' is not a number"):
        read(csv, MAPPING + form)
    marks = 'decimal = ","\nthousands = "."\n'
    with pytest.raises(ForeignError, match="encoding"):
        read(csv.replace("gpus", "Geräte").encode("latin-1"), MAPPING + form + marks)
    runs, refused = read(csv.encode("utf-16"), MAPPING + form + marks)
    assert not refused and runs.reported_throughput.tolist() == [1199, 2212]
    for encoding in ("utf-8", "utf-16"):
        runs, refused = read(f"sep=;\r\n{csv}".encode(encoding), MAPPING + "[format]\n" + marks)
        assert not refused and runs.line.tolist() == [3, 4]


def test_a_row_within_the_tolerance_is_consistent_and_a_refusal_names_both_values(read: Callable) -> None:
    runs, refused = read(CLASSIC, MAPPING.replace("[columns]", "tolerance = 1e-5\n[columns]", 1))
    assert runs.world_size.tolist() == [4, 8] and refused.keys() == {2, 3}
    fault = refused[3]
    assert "4425/s is 2.0001 times" in fault and "tolerance" in fault


def test_a_second_row_of_a_configuration_is_a_repeat_only_if_a_column_says_so(read: Callable) -> None:
    csv = "gpus,mode,epoch_time_s,images_per_sec,n\n1,none,41.7,1199,1\n1,none,30.0,1667,2\n"
    runs, refused = read(csv)
    assert refused.keys() == {3} and runs.throughput.round().tolist() == [1199]
    runs, refused = read(csv, MAPPING.replace('world_size = "gpus"', 'world_size = "gpus"\nrepeat = "n"'))
    assert not refused and runs.repeat.tolist() == [1, 2]


def test_rows_of_different_software_or_dates_are_not_pooled(read: Callable) -> None:
    csv = "gpus,mode,epoch_time_s,images_per_sec,version,day\n" + "".join(
        f"{ranks},ddp,{seconds},{50000 / seconds},{version},{day}\n"
        for version, day, factor in (("2.1", "May", 1), ("2.3", "May", 2), ("2.3", "June", 4))
        for ranks, seconds in ((1, 40 / factor), (2, 25 / factor))
    )
    named = 'world_size = "gpus"\nsoftware = "version"\ndate = "day"'
    runs, refused = read(csv, MAPPING.replace('world_size = "gpus"', named))
    points = efficiency(runs)
    assert not refused and points.repeats.tolist() == [1] * 6
    assert points.efficiency.tolist() == pytest.approx([1, 0.8] * 3)
    assert set(zip(points.software, points.date, strict=True)) == {("2.1", "May"), ("2.3", "May"), ("2.3", "June")}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("16,ddp,OOM,1", "OOM"),
        (",ddp,4.90,1", "world_size"),
        ("16,ddp,-4.90,1", "seconds"),
        ("16,ddp", "cut off"),
        ("16,ddp,4.90,10204,5", "fields"),
        ("16,ddp,4.90,100000", "throughput 100000/s is 9.8 times"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_and_the_others_are_kept(read: Callable, line: str, names: str) -> None:
    runs, refused = read(f"{CLASSIC}\n{line}\n")
    assert refused.keys() == {7}
    assert names in refused[7]
    assert len(runs) == 4


@pytest.mark.parametrize(
    ("csv", "names"),
    [
        (CLASSIC.replace("epoch_time_s", "epoch_time", 1), "columns.seconds"),
        ("", "columns"),
        (b"\xff\xfea", "format"),
        (CLASSIC + '8,"DD', "cut off"),
        ("gpus,mode,epoch_time_s,images_per_sec\n2,ddp,no,1\n", "no row can be used: 'no'"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(read: Callable, csv: str | bytes, names: str) -> None:
    with pytest.raises(ForeignError, match=names):
        read(csv)


# The kept set and the command


def hpc(*arguments: str) -> Result:
    return CliRunner().invoke(main, ("import", *arguments))


def test_a_set_is_kept_with_its_files(desk: Path, results: Path) -> None:
    assert hpc("theirs.csv", "--map", "theirs.toml", "--dry-run").exit_code == 0 and not results.exists()
    printed = hpc("theirs.csv", "--map", "theirs.toml").output
    (eight,) = [line for line in printed.splitlines() if " 8 " in line]
    assert "5.705" in eight and "0.7131" in eight, "both efficiencies"
    assert hpc("theirs.csv", "--map", "theirs.toml", "--as", "another").exit_code == 0
    assert (results / "foreign/another/source.csv").read_bytes() == (desk / "theirs.csv").read_bytes()
    (desk / "theirs.csv").write_text(CLASSIC.replace("1199", "1200"))
    assert "remove it to import again" in hpc("theirs.csv", "--map", "theirs.toml").stderr


def test_the_example_of_the_results_page(desk: Path) -> None:
    page = (paths.root() / "results/README.md").read_text()
    blocks = dict(re.findall(r"^```(csv|toml|sh)\n(.*?)^```", page, re.M | re.S))
    (desk / "theirs.csv").write_text(blocks["csv"])
    (desk / "theirs.toml").write_text(blocks["toml"])
    result = hpc(*blocks["sh"].split()[2:])
    assert result.exit_code == 1
    assert "refused line 6: throughput 61000/s is 5.978 times" in result.stderr
    assert "3 counted once per rank" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("none.csv", "--map", "theirs.toml"), "none.csv"),
        (("theirs.csv",), "--map"),
        (("theirs.csv", "--map", "theirs.toml", "--as", "../../x"), "../../x"),
    ],
)
def test_a_fault_of_the_request_exits_with_2(
    desk: Path, results: Path, arguments: tuple[str, ...], names: str
) -> None:
    result = hpc(*arguments)
    assert result.exit_code == 2
    assert names in result.stderr and not results.exists()
