"""`hpc import`, as a user types it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpc_utils.cli import main
from hpc_utils.records import foreign

from .conftest import CLASSIC, MAPPING

PAGE = Path(__file__).resolve().parents[3] / "results/README.md"


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


def test_a_dry_run_keeps_nothing(desk: Path, results: Path) -> None:
    done = hpc("import", "theirs.csv", "--map", "theirs.toml", "--dry-run")
    assert done.exit_code == 0
    assert "counted once per rank" in done.output
    assert not results.exists()


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
