"""A result set by its folder, its committed name, or its alias: the same for all commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from hpc_utils import paths
from hpc_utils.cli import common, main
from tests.support import write_files

LAPTOP = paths.reference() / "epyc-2core"


def test_all_names_lead_to_one_folder_and_a_folder_here_stands_before_an_alias(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {common.result_set(name) for name in ("laptop", "epyc-2core", str(LAPTOP))} == {LAPTOP}
    (tmp_path / "laptop/runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert common.result_set("laptop") == tmp_path / "laptop"
    with pytest.raises(paths.NoResultSet, match=r"no result set 'lapto': .*epyc-2core.*laptop"):
        common.result_set("lapto")


@pytest.mark.parametrize("text", ["sets = 3", "[sets]\nmine = 3", "[sets"])
def test_without_readable_aliases_sets_have_their_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    write_files(tmp_path, {"paper/paper.toml": text, "mine/runs/run": ""})
    assert common.aliases() == {} and common.result_set(tmp_path / "mine") == tmp_path / "mine"


def test_a_command_in_another_clone_says_whose_results_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not CliRunner().invoke(main, ["params"]).stderr
    (tmp_path / "hpc_utils").mkdir()
    (tmp_path / "hpc_utils/workspace.py").touch()
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(main, ["params"]).stderr
    assert str(tmp_path) in said and str(paths.root()) in said


def test_commands_take_an_alias(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for asked, said in (
        (["report", "--results", "laptop", "--output", str(page)], ""),
        (["chapter", "03_scaling", "--results", "laptop", "-p", "no=1"], "unknown parameter 'no'"),
        (["chapter", "3_scaling"], "did you mean 03_scaling"),
    ):
        done = CliRunner().invoke(main, asked)
        assert (done.exit_code == 2) == bool(said) and said in done.output, done.output
    assert page.stat().st_size
