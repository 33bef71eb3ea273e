"""Drafts: what can be guessed is, as a guess; what nobody can know has to be filled in."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_utils.records.foreign import ForeignError
from hpc_utils.records.foreign.draft import draft, write_draft
from hpc_utils.records.foreign.mapping import read as read_mapping

from .conftest import CLASSIC

FILLED = {
    '"FILL IN"': '"global"', 'title = "global"': 'title = "t"', '"FILL IN: who, where, address"': '"s"',
    "# samples = 1281167": "samples = 50000",
}  # fmt: skip


def drafted(text: str | bytes) -> str:
    return draft(text if isinstance(text, bytes) else text.encode(), Path("theirs.csv"))


def test_a_draft_filled_in_reads_the_file(read: Callable) -> None:
    text = drafted(CLASSIC)
    for was, now in FILLED.items():
        assert was in text
        text = text.replace(was, now)
    found = read(CLASSIC, text)
    assert not found.refused
    assert found.runs.verdict.tolist().count("counted once per rank") == 4


def test_as_it_is_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs.csv").write_text(CLASSIC)
    path = write_draft(tmp_path / "theirs.csv")
    with pytest.raises(ForeignError) as refused:
        read_mapping(path)
    assert "title: this is still to be filled in" in str(refused.value)
    assert "throughput_is: input should be 'global' or 'per_rank', not 'FILL IN'" in str(refused.value)
    with pytest.raises(ForeignError, match="is there already"):
        write_draft(tmp_path / "theirs.csv")


def test_units_batches_and_words_are_guessed_or_left_open() -> None:
    text = drafted(
        "Num GPUs;Epoch Time (ms);Images/sec;Batch Size;dtype;Val Acc;Peak Mem (GB)\n"
        "2;1.234,5;81,0;64;float32;71,5;10,2\n4;900,5;81,0;64;mixed;70,1;10,3\n"
    )
    found = tomllib.loads(text)
    assert found["columns"] == {
        "world_size": "Num GPUs",
        "seconds": {"column": "Epoch Time (ms)", "scale": 0.001},
        "throughput": "Images/sec",
        "precision": "dtype",
        "test_accuracy": {"column": "Val Acc", "scale": 0.01},
        "peak_allocated_bytes": {"column": "Peak Mem (GB)", "scale": 1e9},
    }
    assert found["values"]["precision"] == {"float32": "fp32", "mixed": "FILL IN"}
    assert found["format"] == {"delimiter": ";", "decimal": ",", "thousands": "."}
    assert '# global_batch = "Batch Size"' in text and "or batch_per_device" in text
    assert all(
        "# guess" in line for line in text.splitlines() if line.startswith(("world_size", "seconds", '"float32"'))
    )


@pytest.mark.parametrize(
    "header", ['a"b,gpus', "a\\,gpus", '"a\x7f",gpus', "]\\u0000,gpus", "a # b,gpus", "\U0001f600,gpus"]
)
def test_any_header_makes_a_file_of_toml(header: str) -> None:
    try:
        text = drafted(f"{header}\n1,2\n")
    except ForeignError as refused:
        assert "its first line should name the columns" in str(refused)
    else:
        assert tomllib.loads(text)["columns"]["world_size"] == "gpus"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x00\x01\x02", b"\xff\xfe\x00"])
def test_what_is_no_csv_is_refused_or_drafted_without_a_guess(content: bytes) -> None:
    with pytest.raises(ForeignError):
        drafted(content)
