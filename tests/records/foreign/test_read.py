"""CSVs as others leave them, read whole: rows to runs, verdicts, and the lines that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpc_utils.records import foreign, schema
from hpc_utils.records.foreign import ForeignError

from .conftest import CLASSIC, MAPPING

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
    with pytest.raises(ForeignError, match=r"not utf-8 .* \[format\] encoding says which"):
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
    assert found.refused == {
        8: "epoch 1 of this run is on line 4 already: does a repeat column tell them apart?"
    }  # fmt: skip


def test_the_same_configuration_again_is_another_repeat(read: Callable) -> None:
    runs = read(CLASSIC + "8,DDP,7.30,54795\n").runs
    assert runs[runs.world_size == 8].repeat.tolist() == [1, 2]


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


def test_words_that_look_like_numbers_or_nothing_stay_words(read: Callable) -> None:
    found = read(CLASSIC, MAPPING.replace('"resnet18"', '"50"\ndevice_name = "None"'))
    foreign.keep(found, {})
    assert set(foreign.load().workload) == {"50"}
    assert set(foreign.load().device_name) == {"None"}


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
