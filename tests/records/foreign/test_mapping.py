"""A mapping file is read strictly: what is wrong is named by file and key, with what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.records.foreign import ForeignError
from hpc_utils.records.foreign.mapping import read

from .conftest import MAPPING


def fault(tmp_path: Path, text: str) -> str:
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(ForeignError) as refused:
        read(path)
    assert refused.value.exit_code == 2
    return str(refused.value).replace(str(path), "m.toml")


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("throughput_is", "throughput_iss", "m.toml: unknown key 'throughput_iss': did you mean throughput_is?"),
        ("world_size =", "word_size =", "m.toml: columns: unknown key 'word_size': did you mean world_size?"),
        ("[values.parallel]", "[values.paralel]", "values: unknown key 'paralel': did you mean parallel?"),
        ('"global"', '"all"', "throughput_is: input should be 'global' or 'per_rank', not 'all'"),
        ('throughput_is = "global"', "", "throughput_is: this key is needed where throughput is read"),
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
    assert "samples_is: this key is needed where samples is read" in fault(tmp_path, text)


def test_without_a_mapping_the_way_to_one_is_said(tmp_path: Path) -> None:
    with pytest.raises(ForeignError, match=r"none\.toml: no such mapping file; `hpc import --draft FILE.csv`"):
        read(tmp_path / "none.toml")
